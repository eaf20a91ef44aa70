package proxy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/proxy/tracing"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Forwarder sends requests to the upstream.
type Forwarder interface {
	Forward(ctx context.Context, r *api.Request, as upstream.Credentials) *api.Response
}

// Options are the parts of a Gateway. All are required unless noted.
type Options struct {
	Forwarder Forwarder
	// InProcess is true if the Forwarder's upstream is in this process and trusts the identity in
	// upstream.Credentials.User.
	InProcess     bool
	Resources     Resources
	Manager       *cache.Manager
	Reader        *read.Reader
	Watches       *watch.Watches
	Authenticator *authn.Authenticator
	Authorizer    *authz.Authorizer
	// Revocation ends open watches whose user lost the permission.
	Revocation *revocation.Watches
	// Policy is the initial policy; SetPolicy replaces it.
	Policy policy.Policy
	// VisibleNamespaces bounds the names of namespaces that are cached for rules with VisibleLists.
	// 0 is the default of package visible.
	VisibleNamespaces int
	// Reachable reports whether the upstream can be reached, as far as is known. It must be fast.
	// If nil, the upstream always can.
	Reachable func() bool
	// Discovered returns what the upstream last said that it serves; nil if clients are not served
	// discovery while it cannot be reached.
	Discovered func() discovery.Documents
	// CompressWatchLists compresses watches that begin with initial events if the client accepts it
	// and a list would be compressed.
	CompressWatchLists bool
	// Cluster is the name of the upstream if there are several, else "".
	Cluster string
	// Audit may be nil; then nothing is audited.
	Audit *audit.Log
	// Fairness limits the requests that the gateway serves itself, as the upstream limits those that it
	// serves. If nil, only the upstream limits requests.
	Fairness Fairness
	// Tracer may be nil; then requests have no spans.
	Tracer     *tracing.Tracer
	Health     *healthz.Health
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	// Blocked are the user agents that are rejected; nil for none.
	Blocked *policy.Blocked
}

// Gateway is the handler of the main listeners. It is safe for concurrent use.
type Gateway struct {
	Options
	slots     slots
	forwards  forwards
	memory    memory
	account   account
	session   *consistency.Session
	visible   *visible.Finder
	shards    shard.Parser
	forwarded forwardedStreams
	panics    *contain.Panics
	policy    atomic.Pointer[policy.Compiled]
}

// slots bound the requests under way.
type slots struct {
	inFlight, longRunning *inflight.Limiter
	unidentified          inflight.Semaphore
	resumed               *inflight.Limiter // watches that the upstream continues
	longRequestBytes      *inflight.Limiter // the memory of requests beyond their slot, see func longRequestBytes
}

// forwards is the state of forwarding: coalesced reads, recent rejections, and slots for redacted
// responses.
type forwards struct {
	collapser  *consistency.Coalescer
	rejections consistency.Rejections
	// redactedResponses and redactedWatches have slots for responses that are redacted on their way.
	redactedResponses, redactedWatches *inflight.Limiter
}

// memory has responses of the upstream that read no objects.
type memory struct {
	responses *responses.Cache
	documents *responses.Cache // on all that the upstream serves, which are large
	// documentSlots has slots for those of documents that are read or written.
	documentSlots    *inflight.Limiter
	openAPIDocuments *openapi.Documents // nil where the upstream is in this process
}

// account counts what requests led to, and cost.
type account struct {
	metrics  *metrics
	usage    *usage.Usage
	recent   recent
	rejected *reason.Counter
}

// exchange is the state of one request. The embedded Facts are those that decisions depend on.
type exchange struct {
	route.Facts
	auditID string
	began   time.Time
	source  response.Source
	// policy is the policy in force when the request arrived. It applies to the whole request.
	policy *policy.Compiled
	// sender is the authenticated client, once it is known. Subject is the identity that it acts
	// as.
	sender *authn.Identity
	// span is the request's, from when its client is known; nil without tracing.
	span *tracing.Span
	// audited records the request, from when its client is known; nil if it is not recorded.
	audited *audit.Request
	// cost is the upstream load that the request has caused so far, except for a forwarded
	// response. end ends a streaming response.
	cost freshness.Cost
	end  func()
	*readState
	// limit is the limiter that the request holds a slot of, nil before and afterwards. bytes is
	// what it holds of slots.longRequestBytes.
	limit *inflight.Limiter
	bytes int32

	stale   bool // it is answered from the cache because of a budget
	resumed bool // it has a slot of Gateway.resumed
}

// readState is state that is needed only until a read has a response.
type readState struct {
	facts route.Reading
	// collection is the collection to read. objects is the collection with the objects of a query,
	// in the encoding of the response. version is a version that collection is known to hold,
	// response the result of the read.
	collection, objects *cache.Collection
	version             uint64
	response            *api.Response
	flow                flow // known once it is needed
}

// user returns the name of the client that holds the request's slot: the authenticated user, not an
// impersonated one.
func (x *exchange) user() string { return x.sender.User.GetName() }

// anonymous reports whether the request came without credentials and was admitted.
func (x *exchange) anonymous() bool {
	return x.sender != nil && x.sender.Source == authn.Anonymous
}

// fail responds with err as a Status.
func (x *exchange) fail(err error) *api.Response {
	return api.StatusResponse(err, api.NegotiateStatus(x.Request.Header.Get("Accept"), x.Pretty))
}
