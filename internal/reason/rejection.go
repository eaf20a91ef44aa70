package reason

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Rejection is the reason why the gateway itself rejected a request. Rejections by the upstream are passed on
// and do not count.
type Rejection uint8

// The reasons, in the order in which a request meets them.
const (
	// Malformed is a request whose header can be read in more than one way.
	Malformed Rejection = iota + 1
	// HeaderTooLarge is a header above the limit.
	HeaderTooLarge
	// Expectation is an Expect header with anything but 100-continue.
	Expectation
	// ProtocolVersion is an unsupported version of HTTP.
	ProtocolVersion
	// EarlyUpgrade is an upgrade of a request whose body has not been sent completely.
	EarlyUpgrade
	// TunnelProtocol is an extended CONNECT for anything but a WebSocket.
	TunnelProtocol
	// NotUpgraded is an extended CONNECT to a path that does not become a WebSocket.
	NotUpgraded
	// Panicked is a request for which the handler panicked.
	Panicked
	// NoResponse is a missing response of the handler, or one that cannot be written.
	NoResponse
	// UnknownCluster is a request that names none of several clusters.
	UnknownCluster
	// Misdirected is a request whose Host belongs to another cluster than the server name of its
	// TLS connection.
	Misdirected
	// ClusterPath is a path that leads out of its cluster.
	ClusterPath
	// Blocked is a user agent that an operator has blocked.
	Blocked
	// AllClustersLimit means that the limit of requests in flight of all clusters is reached.
	AllClustersLimit
	// ClusterShare means that the cluster has used up its share of that limit.
	ClusterShare
	// UnidentifiedLimit means that too many requests wait for authentication.
	UnidentifiedLimit
	// Unauthenticated is an invalid credential, or none where one is required.
	Unauthenticated
	// NotLocal is a request to the sidecar listener that is not from this machine.
	NotLocal
	// UnverifiedTokens: too many unverified tokens are being reviewed.
	UnverifiedTokens
	// ReviewUnavailable means that the upstream could not authenticate or authorize the client.
	ReviewUnavailable
	// OfflineDenied means that no API server responds and that the client, as last identified, is
	// not served then.
	OfflineDenied
	// OfflineExpired means that no API server responds and that the cache is too old.
	OfflineExpired
	// ReviewRejected means that the upstream rejects the gateway's reviews.
	ReviewRejected
	// ShortLimit means that the limit of requests in flight is reached.
	ShortLimit
	// ShortShare means that the user has used up its share of that limit.
	ShortShare
	// PriorityLevelFull means that the priority and fairness of a standalone rejects a read.
	PriorityLevelFull
	// LongLimit means that the limit of long-running requests is reached.
	LongLimit
	// LongShare means that the user has used up its share of that limit.
	LongShare
	// BytesLimit means that long-running requests hold as many bytes as they may.
	BytesLimit
	// BytesShare means that the user has used up its share of that limit.
	BytesShare
	// NotAudited is a request that the audit backend did not accept.
	NotAudited
	// ImpersonationInvalid is a malformed impersonation.
	ImpersonationInvalid
	// ImpersonationForbidden is an impersonation that is not allowed.
	ImpersonationForbidden
	// ReadOnly is a request other than a read of a client that a rule restricts to reads.
	ReadOnly
	// OverBudget is a request that would exceed its user's budget of upstream load.
	OverBudget
	// Redacted is a request of a client with a redacted view, whose response cannot be redacted.
	Redacted
	// UserReviews means that too many permissions of the user are being reviewed.
	UserReviews
	// Forbidden is a read of the cache that the user is not allowed.
	Forbidden
	// ShardUnknown is a shard that the cache cannot serve, and that the upstream does not confirm.
	ShardUnknown
	// QueryUnserved is a request with sortBy, where, offset, fields or countBy that is not a
	// list, or that the cache cannot serve.
	QueryUnserved
	// VisibleUnserved is a list or watch of the namespaces that the user may see, which the cache
	// cannot serve.
	VisibleUnserved
	// VisibleLimit means that there is no room to track the namespaces of another such watch.
	VisibleLimit
	// CacheStarting means that too many requests wait for starting collections.
	CacheStarting
	// RequestInvalid is a method, path or header that cannot be sent upstream.
	RequestInvalid
	// NotSent is a request that cannot be sent with its user's identity.
	NotSent
	// BodyTimeout is a body that did not arrive in time.
	BodyTimeout
	// BodyBroken is a body that broke off.
	BodyBroken
	// UpstreamUnreachable means that no connection to the upstream can be opened.
	UpstreamUnreachable
	// UpstreamSilent means that the upstream does not respond to heartbeats.
	UpstreamSilent
	// UpstreamTimeout means that the upstream did not begin its response in time.
	UpstreamTimeout
	// UpstreamBroke means that the connection broke before or during the response.
	UpstreamBroke
	// GatewayIdentityRejected means that the upstream does not authenticate the gateway, or does not
	// let it impersonate the client.
	GatewayIdentityRejected
	// ShuttingDown means that the gateway is shutting down.
	ShuttingDown

	rejections
)

const (
	comeBack   = "Status `ServiceUnavailable` with Retry-After: 1; client-go retries by itself."
	tryLater   = "Plain text with Retry-After: 1, like kube-apiserver above its limits; client-go retries by itself."
	tooMany    = "Status `TooManyRequests` with Retry-After; client-go retries by itself."
	timedOut   = "Status `Timeout`. For a write that was sent, it says that the outcome is unknown."
	plainText  = "Plain text; the connection is closed."
	noTellings = "The message does not state the cause."
)

var rejectionEntries = [rejections]Entry{
	Malformed: {
		Label: "malformed", Code: 400, When: "The header of an HTTP/1.1 request is ambiguous (bare line feeds, two lengths, spaces in names, a path that cannot be decoded).",
		Client: plainText, Metric: `kubeweir_malformed_requests_total{code="400"}`, Do: "Find the sender: no Kubernetes client does this.",
	},
	HeaderTooLarge: {
		Label: "header-too-large", Code: 431, When: "The header of a request exceeds --max-header-bytes. Over HTTP/2 the connection stays open, and the metric does not count it.",
		Client: plainText, Metric: `kubeweir_malformed_requests_total{code="431"}`, Do: "Look for huge tokens or cookies.",
	},
	Expectation: {
		Label: "expectation", Code: 417, When: "An Expect header other than 100-continue.",
		Client: plainText, Metric: `kubeweir_malformed_requests_total{code="417"}`, Do: "Nothing.",
	},
	ProtocolVersion: {
		Label: "protocol-version", Code: 505, When: "A version of HTTP other than 1.0, 1.1 and 2.",
		Client: plainText, Metric: `kubeweir_malformed_requests_total{code="505"}`, Do: "Nothing.",
	},
	EarlyUpgrade: {
		Label: "early-upgrade", Code: 400, When: "A request asks for an upgrade before its body has been sent.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	TunnelProtocol: {
		Label: "tunnel-protocol", Code: 501, When: "An extended CONNECT over HTTP/2 (RFC 8441) for another protocol than WebSocket.",
		Client: "Plain text.", Do: "Nothing.",
	},
	NotUpgraded: {
		Label: "not-upgraded", Code: 400, When: "A WebSocket over HTTP/2 to a path that is answered without one, a list for instance.",
		Client: "Status `BadRequest`.", Do: "Correct the client's path.",
	},
	Panicked: {
		Label: "panicked", Code: 500, When: "The handler panicked; the panic was contained.",
		Client: "Status `InternalError`. " + noTellings, Metric: "kubeweir_panics_total", Do: "Report it with the stack in the log.",
	},
	NoResponse: {
		Label: "no-response", Code: 500, When: "Internal error: the gateway has no valid response.",
		Client: "Status `InternalError`. " + noTellings, Do: "Report it with the log line.",
	},
	UnknownCluster: {
		Label: "unknown-cluster", Code: 404, When: "A gateway of several clusters (docs/clusters.md): the host and path of the request name no cluster, or an unknown one.",
		Client: "Status `NotFound` that explains how requests name clusters.", Do: "Correct the server in the client's kubeconfig; `kubeweir kubeconfig` writes one. Look for \"configuration rejected\" in the log if the cluster was added.",
	},
	Misdirected: {
		Label: "misdirected", Code: 421, When: "Host, or :authority, belongs to another cluster than the TLS server name (SNI).",
		Client: "Status with code 421; browsers retry on another connection.", Do: "Check tls-server-name in the client's kubeconfig.",
	},
	ClusterPath: {
		Label: "cluster-path", Code: 400, When: "Dot segments of a path below /clusters/NAME lead out of it.",
		Client: "Status `BadRequest`.", Do: "Find the sender: no Kubernetes client does this.",
	},
	Blocked: {
		Label: "blocked", Code: 429, When: "An operator has blocked the user agent at run time, or a rule with block matches the client.",
		Client: "Status `TooManyRequests` with Retry-After of a minute at most; the message names the pattern, or says that a rule does it. It is not 403, because permissions have not changed.",
		Metric: "kubeweir_blocked_user_agents", Do: "Nothing, if it was intended. An operator's block ends with its time, with the process, or when the operator unblocks it.",
	},
	AllClustersLimit: {
		Label: "all-clusters-limit", Code: 429, When: "The limit --all-clusters-max-requests-inflight or --all-clusters-max-watches is reached.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{reason="all"}`, Do: "Raise the limit, or run more gateways.",
	},
	ClusterShare: {
		Label: "cluster-share", Code: 429, When: "The requests of one cluster hold more than three times the free slots of that limit.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{reason="cluster"}`, Do: "Check how fast that cluster responds: kubeweir_requests_in_flight with the label cluster.",
	},
	UnidentifiedLimit: {
		Label: "unidentified-limit", Code: 429, When: "As many requests as limits.maxInFlight, which is --max-requests-inflight of a gateway, wait for authentication.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="unidentified",reason="limit"}`, Do: "Check how fast the upstream responds to TokenReviews; look for clients that keep using new tokens.",
	},
	Unauthenticated: {
		Label: "unauthenticated", Code: 401, When: "No credential although anonymous requests are not allowed, or an invalid one.",
		Client: "Status `Unauthorized`; over HTTP/2 the connection is closed.", Metric: `kubeweir_authentication_requests_total{result="unauthenticated"}`, Do: "Check the client's token or certificate, --client-ca-file and --anonymous-auth.",
	},
	NotLocal: {
		Label: "not-local", Code: 403, When: "A request to the sidecar listener with a foreign Host header, or from a foreign web page.",
		Client: "Status `Forbidden` that names the cause.", Do: "If the host is a name of this machine, add it to --sidecar-hosts.",
	},
	UnverifiedTokens: {
		Label: "unverified-tokens", Code: 429, When: "Too many unverified tokens are being reviewed.",
		Client: tooMany, Metric: `kubeweir_authentication_token_reviews_total{result="limited"}`, Do: "Look for clients with made-up tokens. After a restart it is temporary.",
	},
	ReviewUnavailable: {
		Label: "review-unavailable", Code: 503, When: "The review of the client's token or permission failed, and no result is cached.",
		Client: comeBack, Do: "Check kubeweir_upstream_gone. Grant the gateway create on tokenreviews and subjectaccessreviews. --offline=allow serves known clients during outages.",
	},
	OfflineDenied: {
		Label: "offline-denied", Code: 503, When: "No API server responds, and the client would need offline mode, which is not allowed for it.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Nothing, if it is intended; see --offline and rules.",
	},
	OfflineExpired: {
		Label: "offline-expired", Code: 503, When: "No API server responds, and the cached data is older than --offline-ttl.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Repair the connection to the cluster; raise --offline-ttl if older data is acceptable.",
	},
	ReviewRejected: {
		Label: "review-rejected", Code: 500, When: "The upstream rejects the gateway's reviews as invalid.",
		Client: "Status `InternalError`. " + noTellings, Do: "See the log.",
	},
	ShortLimit: {
		Label: "short-limit", Code: 429, When: "The limit limits.maxInFlight is reached, which is --max-requests-inflight of a gateway.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="short",reason="limit"}`, Do: "Raise the limit, or run more gateways.",
	},
	ShortShare: {
		Label: "short-share", Code: 429, When: "The user holds more than three times the free slots.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="short",reason="share"}`, Do: "Find the user in the audit log; raise the limit if the load is legitimate.",
	},
	PriorityLevelFull: {
		Label: "priority-level-full", Code: 429, When: "Standalone only: the request's priority level has no free seat, and its queue is full or the request has waited for 15 s.",
		Client: "Plain text with Retry-After, like kube-apiserver's priority and fairness; client-go retries by itself.",
		Do:     "See /debug/api_priority_and_fairness/dump_requests of the API; give the level more shares, or raise --max-requests-inflight.",
	},
	LongLimit: {
		Label: "long-limit", Code: 429, When: "The limit --max-watches for watches, followed logs and upgraded connections is reached.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="long",reason="limit"}`, Do: "Raise the limit, or run more gateways.",
	},
	LongShare: {
		Label: "long-share", Code: 429, When: "The user holds more than three times the free slots.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="long",reason="share"}`, Do: "Find the user in the audit log; raise the limit if the load is legitimate.",
	},
	BytesLimit: {
		Label: "bytes-limit", Code: 429, When: "Paths, headers and selectors of open long-running requests (above 4 KiB each) hold all of 128 MiB.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="bytes",reason="limit"}`, Do: "Find the client with very large selectors.",
	},
	BytesShare: {
		Label: "bytes-share", Code: 429, When: "The user holds more than its share of those bytes.",
		Client: tryLater, Metric: `kubeweir_requests_rejected_total{kind="bytes",reason="share"}`, Do: "See bytes-limit.",
	},
	NotAudited: {
		Label: "not-audited", Code: 500, When: "An audit backend in mode blocking-strict did not accept the event of the received request.",
		Client: "Plain text `failed to store audit event`, like kube-apiserver.", Do: "Check the disk of the audit log, or the audit webhook; its error is in the log.",
	},
	ImpersonationInvalid: {
		Label: "impersonation-invalid", Code: 400, When: "Impersonate headers without a user, or invalid ones.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	ImpersonationForbidden: {
		Label: "impersonation-forbidden", Code: 403, When: "The client may not impersonate that user, and cannot be forwarded as itself.",
		Client: "Status `Forbidden`, worded as by kube-apiserver.", Do: "Grant impersonate, if it is intended.",
	},
	ReadOnly: {
		Label: "read-only", Code: 403, When: "A rule with readOnly matches the request, which is not certainly a read.",
		Client: "Status `Forbidden`; the message names the rule setting.", Do: "Nothing, if it is intended; see readOnly in rules.",
	},
	OverBudget: {
		Label: "over-budget", Code: 429, When: "The request needs the cluster, at least for a permission review, and its user has exhausted the budget of a rule (upstreamRequestsPerSecond, upstreamBytesPerSecond).",
		Client: "Status `TooManyRequests` with Retry-After of a minute at most; the message names the rule and its setting.",
		Metric: `kubeweir_budget_exceeded_total{outcome="rejected"}`, Do: "Nothing, if it is intended. overBudget: cached in the rule serves reads from the cache. See docs/usage.md.",
	},
	Redacted: {
		Label: "redacted", Code: 403, When: "A rule with `view: redacted` matches the request, and the response cannot be redacted: a write (its response has the object), a log, an exec, a proxy, an ambiguous path, a selector on redacted fields. Or the response of the upstream, for data that is not in the cache, is not JSON, larger than 8 MiB or invalid; 406 if the client accepts no JSON, 429 if too many such responses are being redacted.",
		Client: "Status `Forbidden`; the message names the rule setting and the part of the request.", Do: "Nothing, if it is intended; see docs/redacted.md. Use pages for large lists.",
	},
	UserReviews: {
		Label: "user-reviews", Code: 429, When: "Too many permissions of one user are being reviewed.",
		Client: tooMany, Do: "Look for a client that keeps requesting new resources or namespaces; check how fast the upstream responds to reviews.",
	},
	Forbidden: {
		Label: "forbidden", Code: 403, When: "The upstream does not allow the user this read.",
		Client: "Status `Forbidden`, worded as by kube-apiserver.", Do: "Grant the read, if it is intended. A grant takes effect within --authorization-denied-ttl.",
	},
	ShardUnknown: {
		Label: "shard-unknown", Code: 400, When: "The cache cannot serve a list or watch with a shardSelector, for one of the reasons for forwarding, and the response of the upstream does not confirm the shard. (A server without shardSelector returns the complete collection; only lists of built-in types in JSON or protobuf confirm it.) Or a deletion with a shardSelector.",
		Client: "Status `BadRequest`; 410 if the version is gone, 504 if it has not been reached, 503 with Retry-After: 1 if the cache is temporarily unavailable.",
		Do:     "See the reason in the message. Delete by name, or without a shardSelector.",
	},
	QueryUnserved: {
		Label: "query-unserved", Code: 400, When: "The cache cannot serve a list with sortBy, where, offset, fields or countBy, for one of the reasons for forwarding. It is not forwarded, because other servers ignore these parameters. Or a watch or a deletion with one of them.",
		Client: "Status `BadRequest`; 410 if the version is gone, 504 if it has not been reached, 503 with Retry-After: 1 if the cache is temporarily unavailable.",
		Do:     "See the reason in the message, and docs/queries.md.",
	},
	VisibleUnserved: {
		Label: "visible-unserved", Code: 503, When: "A rule with visibleLists applies to a cluster-wide list or watch, and the cache cannot serve it, for one of the reasons for forwarding. It is not forwarded, because the upstream would deny it.",
		Client: "Status `ServiceUnavailable` with Retry-After: 1; 410 if the version is gone, 504 if it has not been reached, 403 if the cache never serves such a list.",
		Do:     "See the reason in the message.",
	},
	VisibleLimit: {
		Label: "visible-limit", Code: 429, When: "A rule with visibleLists applies to a watch, and the names of the visible namespaces exceed the limit for the user, or for all users.",
		Client: tooMany, Metric: "kubeweir_authorization_visible_namespaces", Do: "Raise authorization.visibleNamespaces; look for a user with very many watches with different selectors.",
	},
	CacheStarting: {
		Label: "cache-starting", Code: 429, When: "Too many requests wait for collections that are being filled for the first time.",
		Client: tooMany, Metric: "kubeweir_cache_start_rejected_total", Do: "Nothing, it is temporary; see kubeweir_cache_start_seconds.",
	},
	RequestInvalid: {
		Label: "request-invalid", Code: 400, When: "The method, path or a header of the request cannot be sent upstream.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	NotSent: {
		Label: "not-sent", Code: 403, When: "The request cannot be sent upstream as its client: the user's name, UID, a group or an extra value is not a valid header value (a control character, a trailing space).",
		Client: "Status `Forbidden` that states the cause.", Do: "Nothing.",
	},
	BodyTimeout: {
		Label: "body-timeout", Code: 504, When: "The request's body did not arrive in time.",
		Client: timedOut, Do: "Check the client's link.",
	},
	BodyBroken: {
		Label: "body-broken", Code: 400, When: "The request's body broke off or is invalid.",
		Client: "Status `BadRequest`.", Do: "Check the client.",
	},
	UpstreamUnreachable: {
		Label: "upstream-unreachable", Code: 503, When: "The gateway cannot connect to the upstream (connection refused, name not resolved, certificate not trusted).",
		Client: comeBack + " The message states the cause.", Do: "Check the gateway's kubeconfig; the log has the address and the error.",
	},
	UpstreamSilent: {
		Label: "upstream-silent", Code: 503, When: "The upstream has been silent for --upstream-silence-timeout. A write that was sent gets 504.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Check the upstream and the link to it. Reads at any version are still served from the cache.",
	},
	UpstreamTimeout: {
		Label: "upstream-timeout", Code: 504, When: "The upstream did not send response headers within --upstream-request-timeout.",
		Client: timedOut, Do: "Check the load of the upstream.",
	},
	UpstreamBroke: {
		Label: "upstream-broke", Code: 503, When: "The connection to the upstream broke before the response, or the response broke off before any of it was forwarded.",
		Client: "Status `ServiceUnavailable`; for a read with Retry-After: 1. For a write that was sent, it says that the outcome, or the response, is unknown.",
		Metric: "kubeweir_upstream_broken_responses_total", Do: "Check for restarts of the upstream and proxies in between.",
	},
	GatewayIdentityRejected: {
		Label: "gateway-identity-rejected", Code: 503, When: "The upstream denies the gateway the impersonation of the client, or rejects its credentials.",
		Client: comeBack, Do: "Grant impersonate to the gateway; renew its token or certificate.",
	},
	ShuttingDown: {
		Label: "shutting-down", Code: 503, When: "The gateway shut down during the request.",
		Client: "Status `ServiceUnavailable`.", Do: "Nothing; raise --shutdown-drain if clients are affected.",
	},
}

// Entry returns the description of the reason.
func (r Rejection) Entry() Entry { return rejectionEntries[r] }

// String returns the reason's label.
func (r Rejection) String() string { return rejectionEntries[r].Label }

// Rejections returns all reasons, in order.
func Rejections() []Rejection { return all(Malformed, rejections) }

// Counter counts rejections. It is safe for concurrent use.
type Counter struct {
	counters [rejections]prometheus.Counter
}

// NewCounter returns a Counter that counts in registerer as kubeweir_rejections_total. All Counters
// of one registry share the metric. registerer may be nil.
func NewCounter(registerer prometheus.Registerer) *Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_rejections_total",
		Help: "Requests that the gateway rejected itself, by reason (docs/reasons.md). A coalesced request counts once.",
	}, []string{"reason"})
	if registerer != nil {
		var registered prometheus.AlreadyRegisteredError
		if errors.As(registerer.Register(vec), &registered) {
			vec = registered.ExistingCollector.(*prometheus.CounterVec)
		}
	}
	c := &Counter{}
	for _, r := range Rejections() {
		c.counters[r] = vec.WithLabelValues(r.String())
	}
	return c
}

// Count counts one rejection.
func (c *Counter) Count(r Rejection) { c.counters[r].Inc() }
