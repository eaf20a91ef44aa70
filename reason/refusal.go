package reason

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Refusal says why the gateway refused a request by itself. What the upstream refuses is passed on, and is none.
type Refusal uint8

// The reasons, in the order in which a request meets them.
const (
	// Malformed is a request whose head cannot be read in one way only.
	Malformed Refusal = iota + 1
	// HeaderTooLarge is a head above the limit.
	HeaderTooLarge
	// Expectation is an Expect header with anything but 100-continue.
	Expectation
	// ProtocolVersion is a version of HTTP that is not spoken.
	ProtocolVersion
	// EarlyUpgrade is an upgrade of a request whose body has not been sent.
	EarlyUpgrade
	// Panicked is a request at which the handler panicked.
	Panicked
	// NoResponse is an answer of the handler that is none, or cannot be written.
	NoResponse
	// UnknownCluster is a request that names none of several clusters.
	UnknownCluster
	// Misdirected is a request whose Host is another cluster's than the name of its TLS connection.
	Misdirected
	// ClusterPath is a path that leads out of its cluster.
	ClusterPath
	// Blocked is a user agent that an operator has blocked.
	Blocked
	// AllClustersLimit: as many requests are under way over all clusters as may be.
	AllClustersLimit
	// ClusterShare: the cluster has more than its share of those.
	ClusterShare
	// UnidentifiedLimit: too many requests wait for it to be found out who sent them.
	UnidentifiedLimit
	// Unauthenticated is a credential that is not good, or none where one is needed.
	Unauthenticated
	// NotLocal is a request to the sidecar listener that is not from this machine.
	NotLocal
	// UnverifiedTokens: too many unverified tokens are being reviewed.
	UnverifiedTokens
	// ReviewUnavailable: the upstream could not be asked who the client is, or what it may do.
	ReviewUnavailable
	// OfflineDenied: no API server answers, and the client, known by what the upstream said last, is not served then.
	OfflineDenied
	// OfflineExpired: no API server answers, and what the cache holds is too old.
	OfflineExpired
	// ReviewRefused: the upstream rejects the gateway's reviews.
	ReviewRefused
	// ShortLimit: as many requests are under way as may be.
	ShortLimit
	// ShortShare: the user has more than its share of those.
	ShortShare
	// LongLimit: as many long-running requests are under way as may be.
	LongLimit
	// LongShare: the user has more than its share of those.
	LongShare
	// BytesLimit: requests hold as much of their text, and of bodies that are transcoded, as they may.
	BytesLimit
	// BytesShare: the user has more than its share of that.
	BytesShare
	// ImpersonationInvalid is a malformed impersonation.
	ImpersonationInvalid
	// ImpersonationForbidden is an impersonation that is not allowed.
	ImpersonationForbidden
	// ReadOnly is anything but a read of a client that a rule lets read only.
	ReadOnly
	// OverBudget is a request that would cause more upstream than its sender may.
	OverBudget
	// Redacted is a request of a client that sees a redacted view, whose answer cannot be
	// redacted.
	Redacted
	// UserReviews: too many permissions of the user are being reviewed.
	UserReviews
	// Forbidden is a read of the cache that the user may not make.
	Forbidden
	// ShardUnknown is a shard that the cache does not answer, and the upstream not so that it shows.
	ShardUnknown
	// QueryUnanswered is a request with sortBy, where, offset, fields or countBy that is no
	// list, or one that the cache does not answer.
	QueryUnanswered
	// VisibleUnanswered is a list or watch of the namespaces that the user may see which the cache does not answer.
	VisibleUnanswered
	// VisibleLimit: no room is left to follow the namespaces that a watch shows.
	VisibleLimit
	// CacheStarting: too many requests wait for the caches that are starting.
	CacheStarting
	// RequestInvalid is a method, path or header that cannot be sent upstream.
	RequestInvalid
	// NotSent is a request that cannot be sent as its user.
	NotSent
	// BodyTimeout is a body that did not come in time.
	BodyTimeout
	// BodyBroken is a body that broke off.
	BodyBroken
	// UpstreamUnreachable: no connection to the upstream can be made.
	UpstreamUnreachable
	// UpstreamSilent: the upstream gives no sign of life.
	UpstreamSilent
	// UpstreamTimeout: the upstream did not begin its answer in time.
	UpstreamTimeout
	// UpstreamBroke: the connection broke before the answer, or in it.
	UpstreamBroke
	// GatewayIdentityRefused: the upstream refuses the gateway the impersonation of the client, or does not know it.
	GatewayIdentityRefused
	// ShuttingDown: the gateway ends.
	ShuttingDown

	refusals
)

const (
	comeBack   = "Status `ServiceUnavailable` with Retry-After: 1; client-go retries by itself."
	tryLater   = "Plain text with Retry-After: 1, as of kube-apiserver over its own limits; client-go retries by itself."
	tooMany    = "Status `TooManyRequests` with Retry-After; client-go retries by itself."
	timedOut   = "Status `Timeout`; for a write that was sent it says that nobody knows whether it was applied."
	plainText  = "Plain text, and the end of the connection."
	noTellings = "The message says nothing of the cause."
)

var refusalEntries = [refusals]Entry{
	Malformed: {
		Label: "malformed", Code: 400, When: "The head of an HTTP/1.1 request cannot be read in one way only (bare line feeds, two lengths, spaces in names, a path that cannot be decoded).",
		Client: plainText, Metric: `kubeweir_malformed_requests_total{code="400"}`, Do: "Find who sends it: no Kubernetes client does.",
	},
	HeaderTooLarge: {
		Label: "header-too-large", Code: 431, When: "The head of a request is larger than the limit on headers. Over HTTP/2 the connection goes on, and the metric does not count it.",
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
		Label: "early-upgrade", Code: 400, When: "A request asks for an upgrade while its body is still under way.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	Panicked: {
		Label: "panicked", Code: 500, When: "The handler panicked at this request; the panic was contained.",
		Client: "Status `InternalError`. " + noTellings, Metric: "kubeweir_panics_total", Do: "Report it with the stack in the log.",
	},
	NoResponse: {
		Label: "no-response", Code: 500, When: "The gateway has no answer that can be given: a fault of its own.",
		Client: "Status `InternalError`. " + noTellings, Do: "Report it with the log's line.",
	},
	UnknownCluster: {
		Label: "unknown-cluster", Code: 404, When: "Of a gateway of several clusters (docs/clusters.md), the request names none by its host or path, or one that is not there.",
		Client: "Status `NotFound` that says how clusters are named.", Do: "Correct the server in the client's kubeconfig; `kubeweir kubeconfig` writes one. Look for \"configuration rejected\" in the log if the cluster was added.",
	},
	Misdirected: {
		Label: "misdirected", Code: 421, When: "Host, or :authority, is a name of another cluster than the one that TLS was asked for (SNI).",
		Client: "Status with code 421; browsers come again by another connection.", Do: "Look at tls-server-name in the client's kubeconfig.",
	},
	ClusterPath: {
		Label: "cluster-path", Code: 400, When: "A path below /clusters/NAME leads out of it by its dot segments.",
		Client: "Status `BadRequest`.", Do: "Find who sends it: no Kubernetes client does.",
	},
	Blocked: {
		Label: "blocked", Code: 429, When: "An operator has blocked the user agent at run time, or a rule with block matches the client.",
		Client: "Status `TooManyRequests` with Retry-After, of a minute at most; the message names the pattern, or says that a rule does it. Its rights are what they were, so it is not 403.",
		Metric: "kubeweir_blocked_user_agents", Do: "Nothing, if it was meant; it ends when its time is over, with the process, or when the operator unblocks it.",
	},
	AllClustersLimit: {
		Label: "all-clusters-limit", Code: 429, When: "As many requests are under way as --all-clusters-max-requests-inflight or --all-clusters-max-watches allows.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{reason="all"}`, Do: "Raise the limit, or run more gateways.",
	},
	ClusterShare: {
		Label: "cluster-share", Code: 429, When: "The requests of one cluster have more than their share of those: three times what is free.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{reason="cluster"}`, Do: "Look at how fast that cluster answers: kubeweir_requests_in_flight with the label cluster.",
	},
	UnidentifiedLimit: {
		Label: "unidentified-limit", Code: 429, When: "As many requests as --max-requests-inflight wait for it to be found out who sent them.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="unidentified",reason="limit"}`, Do: "Look at how fast the upstream answers TokenReviews; look for clients with ever new tokens.",
	},
	Unauthenticated: {
		Label: "unauthenticated", Code: 401, When: "No credential where anonymous requests are not let in, or one that is not good.",
		Client: "Status `Unauthorized`; over HTTP/2 the connection ends.", Metric: `kubeweir_authentication_requests_total{result="unauthenticated"}`, Do: "Check the client's token or certificate, --client-ca-file and --anonymous-auth.",
	},
	NotLocal: {
		Label: "not-local", Code: 403, When: "A request to the sidecar listener with a Host header of elsewhere, or from a web page of elsewhere.",
		Client: "Status `Forbidden` that says which.", Do: "Name the host with --sidecar-hosts if it is this machine's.",
	},
	UnverifiedTokens: {
		Label: "newcomers", Code: 429, When: "Too many unverified tokens are being reviewed.",
		Client: tooMany, Metric: `kubeweir_authentication_token_reviews_total{result="limited"}`, Do: "Look for clients with made-up tokens; after a restart it passes.",
	},
	ReviewUnavailable: {
		Label: "review-unavailable", Code: 503, When: "The upstream could not be asked who the client is or what it may do, and nothing remembered tells.",
		Client: comeBack, Do: "Look at kubeweir_upstream_gone; grant the gateway create on tokenreviews and subjectaccessreviews; --offline=allow lets known clients go on.",
	},
	OfflineDenied: {
		Label: "offline-denied", Code: 503, When: "No API server answers, and no rule of offline lets the client be served by what the upstream said of it last.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Nothing, if it is right; see --offline and rules.",
	},
	OfflineExpired: {
		Label: "offline-expired", Code: 503, When: "No API server answers, and what the cache holds is older than --offline-ttl.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Mend the way to the cluster; lengthen --offline-ttl if older answers are right.",
	},
	ReviewRefused: {
		Label: "review-refused", Code: 500, When: "The upstream answers the gateway's reviews with an error that is about them.",
		Client: "Status `InternalError`. " + noTellings, Do: "Read the log.",
	},
	ShortLimit: {
		Label: "short-limit", Code: 429, When: "As many requests are under way as --max-requests-inflight allows.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="short",reason="limit"}`, Do: "Raise the limit, or run more gateways.",
	},
	ShortShare: {
		Label: "short-share", Code: 429, When: "The user has more than its share of the requests under way: three times what is free.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="short",reason="share"}`, Do: "Find the user in the audit log; raise the limit if it is right.",
	},
	LongLimit: {
		Label: "long-limit", Code: 429, When: "As many watches, followed logs and upgraded connections are open as --max-watches allows.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="long",reason="limit"}`, Do: "Raise the limit, or run more gateways.",
	},
	LongShare: {
		Label: "long-share", Code: 429, When: "The user has more than its share of those.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="long",reason="share"}`, Do: "Find the user in the audit log; raise the limit if it is right.",
	},
	BytesLimit: {
		Label: "bytes-limit", Code: 429, When: "The paths, headers and selectors of open long-running requests, beyond 4 KiB each, and bodies in CBOR while they are transcoded take all of 128 MiB.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="bytes",reason="limit"}`, Do: "Find the client with huge selectors or bodies.",
	},
	BytesShare: {
		Label: "bytes-share", Code: 429, When: "The user has more than its share of that.",
		Client: tryLater, Metric: `kubeweir_requests_refused_total{kind="bytes",reason="share"}`, Do: "As for bytes-limit.",
	},
	ImpersonationInvalid: {
		Label: "impersonation-invalid", Code: 400, When: "Impersonate headers without a user, or that cannot be read.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	ImpersonationForbidden: {
		Label: "impersonation-forbidden", Code: 403, When: "The client may not impersonate whom it names, and cannot be forwarded as itself.",
		Client: "Status `Forbidden`, in the words of kube-apiserver.", Do: "Grant impersonate, if it is right.",
	},
	ReadOnly: {
		Label: "read-only", Code: 403, When: "The request is no read, or not surely one, and a rule with readOnly matches it.",
		Client: "Status `Forbidden`; the message says that a rule does it.", Do: "Nothing, if it is right; see readOnly of rules.",
	},
	OverBudget: {
		Label: "over-budget", Code: 429, When: "The request takes a request to the cluster, if only to find out what its user may do, and the user has caused as much there as a rule allows (upstreamRequestsPerSecond, upstreamBytesPerSecond).",
		Client: "Status `TooManyRequests` with Retry-After, of a minute at most; the message names the rule and its setting.",
		Metric: `kubeweir_budget_answers_total{answer="refused"}`, Do: "Nothing, if it is right; overBudget: cached in the rule answers reads from the cache. See docs/usage.md.",
	},
	Redacted: {
		Label: "redacted", Code: 403, When: "A rule with `view: redacted` matches the request, and the answer cannot be redacted: a write (its answer has the object), a log, an exec, a proxy, a path that can be read in more than one way, a selector by what is redacted. Or the upstream's answer, of what is not in the cache, is no JSON, larger than 8 MiB or not understood; 406 where the client accepts no JSON, 429 where too many such answers are being redacted.",
		Client: "Status `Forbidden`; the message says that a rule does it, and what of the request it is about.", Do: "Nothing, if it is right; see docs/redacted.md. Ask for pages of what is too large.",
	},
	UserReviews: {
		Label: "user-reviews", Code: 429, When: "Too many permissions of one user are being reviewed.",
		Client: tooMany, Do: "Look for a client that asks for ever new things; look at how fast the upstream answers reviews.",
	},
	Forbidden: {
		Label: "forbidden", Code: 403, When: "The upstream does not allow the user this read.",
		Client: "Status `Forbidden`, in the words of kube-apiserver.", Do: "Grant the read, if it is right. A grant counts within --authorization-denied-ttl.",
	},
	ShardUnknown: {
		Label: "shard-unknown", Code: 400, When: "A list or watch with a shardSelector that the cache cannot answer, for one of the reasons for which reads are forwarded, and the upstream's answer does not say that it is the shard: one that does not know shardSelector answers with the whole collection. Only lists of built-in types in JSON or protobuf say so. Or a deletion with a shardSelector.",
		Client: "Status `BadRequest`; 410 where the version is gone, 504 where it is still to come, 503 with Retry-After: 1 where the cache cannot be read now.",
		Do:     "Look at the reason in the message. Delete by name, or without a shardSelector.",
	},
	QueryUnanswered: {
		Label: "query-unanswered", Code: 400, When: "A list with sortBy, where, offset, fields or countBy that the cache cannot answer, for one of the reasons for which reads are forwarded: no other server knows these parameters, and it would answer without them. Or a watch or a deletion with one of them.",
		Client: "Status `BadRequest`; 410 where the version is gone, 504 where it is still to come, 503 with Retry-After: 1 where the cache cannot be read now.",
		Do:     "Look at the reason in the message; see docs/queries.md.",
	},
	VisibleUnanswered: {
		Label: "visible-unanswered", Code: 503, When: "By a rule with visibleLists a list or watch of all namespaces shows those that the user may see, and the cache cannot answer it, for one of the reasons for which reads are forwarded: the upstream would refuse it.",
		Client: "Status `ServiceUnavailable` with Retry-After: 1; 410 where the version is gone, 504 where it is still to come, 403 where the cache never answers such a list.",
		Do:     "Look at the reason in the message.",
	},
	VisibleLimit: {
		Label: "visible-limit", Code: 429, When: "By a rule with visibleLists a watch shows the namespaces that the user may see, and their names are more than may be remembered for the user, or for all.",
		Client: tooMany, Metric: "kubeweir_authorization_visible_namespaces", Do: "Raise authorization.visibleNamespaces; look for a user with very many watches of different selectors.",
	},
	CacheStarting: {
		Label: "cache-starting", Code: 429, When: "Too many requests wait for caches that are being filled for the first time.",
		Client: tooMany, Metric: "kubeweir_cache_start_refused_total", Do: "It passes; see kubeweir_cache_start_seconds.",
	},
	RequestInvalid: {
		Label: "request-invalid", Code: 400, When: "The method, path or a header of the request cannot be sent upstream.",
		Client: "Status `BadRequest`.", Do: "Nothing.",
	},
	NotSent: {
		Label: "not-sent", Code: 403, When: "The request cannot be sent upstream as its client: the user's name, UID, a group or an extra value cannot be in a header (a control character, a space at its end).",
		Client: "Status `Forbidden` that says why.", Do: "Nothing.",
	},
	BodyTimeout: {
		Label: "body-timeout", Code: 504, When: "The request's body did not come in time.",
		Client: timedOut, Do: "Look at the client's link.",
	},
	BodyBroken: {
		Label: "body-broken", Code: 400, When: "The request's body broke off or cannot be read.",
		Client: "Status `BadRequest`.", Do: "Look at the client.",
	},
	UpstreamUnreachable: {
		Label: "upstream-unreachable", Code: 503, When: "No connection to the upstream can be made (refused, name not resolved, certificate not trusted).",
		Client: comeBack + " The message says which of these.", Do: "The log names address and error; check the gateway's kubeconfig.",
	},
	UpstreamSilent: {
		Label: "upstream-silent", Code: 503, When: "Nothing has been heard of the upstream for --upstream-silence-timeout. A write that was sent gets 504.",
		Client: comeBack, Metric: "kubeweir_upstream_gone", Do: "Look at the upstream and the link to it. Reads of any version go on from the cache.",
	},
	UpstreamTimeout: {
		Label: "upstream-timeout", Code: 504, When: "The upstream did not begin its answer within --upstream-request-timeout.",
		Client: timedOut, Do: "Look at the upstream's load.",
	},
	UpstreamBroke: {
		Label: "upstream-broke", Code: 503, When: "The connection to the upstream broke before its answer, or the answer broke off before any of it was passed on.",
		Client: "Status `ServiceUnavailable`; for a read with Retry-After: 1, for a write that was sent it says that nobody knows whether it was applied, or how it was answered.",
		Metric: "kubeweir_upstream_broken_responses_total", Do: "Look at the upstream's restarts and at proxies between.",
	},
	GatewayIdentityRefused: {
		Label: "gateway-identity-refused", Code: 503, When: "The upstream does not let the gateway impersonate the client, or does not know the gateway.",
		Client: comeBack, Do: "Grant impersonate to the gateway; renew its token or certificate.",
	},
	ShuttingDown: {
		Label: "shutting-down", Code: 503, When: "The gateway ends while the request is under way.",
		Client: "Status `ServiceUnavailable`.", Do: "Nothing; lengthen --shutdown-drain if clients notice.",
	},
}

// Entry describes the reason.
func (r Refusal) Entry() Entry { return refusalEntries[r] }

// String is the reason's label.
func (r Refusal) String() string { return refusalEntries[r].Label }

// Refusals are all reasons, in order.
func Refusals() []Refusal { return all(Malformed, refusals) }

// Counter counts refusals. It is safe for concurrent use.
type Counter struct{ counters [refusals]prometheus.Counter }

// NewCounter makes a Counter that counts in registerer as kubeweir_refusals_total; all of one registry count
// together. registerer may be nil.
func NewCounter(registerer prometheus.Registerer) *Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_refusals_total",
		Help: "Requests that the gateway rejected itself, by reason (docs/reasons.md). A coalesced request counts once.",
	}, []string{"reason"})
	if registerer != nil {
		var registered prometheus.AlreadyRegisteredError
		if errors.As(registerer.Register(vec), &registered) {
			vec = registered.ExistingCollector.(*prometheus.CounterVec)
		}
	}
	c := &Counter{}
	for _, r := range Refusals() {
		c.counters[r] = vec.WithLabelValues(r.String())
	}
	return c
}

// Count counts one.
func (c *Counter) Count(r Refusal) { c.counters[r].Inc() }
