package proxy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/proxy/transcode"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/proxy/usage"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
)

// Forwarder sends requests to the upstream.
type Forwarder interface {
	Forward(ctx context.Context, r *api.Request, as upstream.Credentials) *api.Response
}

// Options are the parts of a Gateway. All are required unless noted.
type Options struct {
	Forwarder Forwarder
	// InProcess says that the Forwarder's upstream is in this process and trusts the identity in
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
	Discovered func() upstream.Documents
	// CompressWatchLists compresses watches that begin with initial events if the client accepts it
	// and a list would be compressed.
	CompressWatchLists bool
	// Cluster is the name of the upstream if there are several, else "".
	Cluster string
	// Audit may be nil; then nothing is audited.
	Audit      *audit.Log
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
	policy    atomic.Pointer[policy.Compiled]
}

// slots bound the requests under way.
type slots struct {
	inFlight, longRunning *inflight.Limiter
	unidentified          inflight.Semaphore
	resumed               *inflight.Limiter // watches that the upstream continues
	heldBytes             *inflight.Limiter // what requests hold of memory beyond their slot, see heldBytes
}

// forwards has what sends requests to the upstream, and which reads the gateway itself is
// forbidden.
type forwards struct {
	transcoder *transcode.Transcoder
	collapser  *consistency.Coalescer
	refusals   consistency.Rejections
	// redactedAnswers and redactedWatches have slots for responses that are redacted on their way.
	redactedAnswers, redactedWatches *inflight.Limiter
}

// memory has responses of the upstream that read no objects.
type memory struct {
	answers   *responses.Cache
	documents *responses.Cache // on all that the upstream serves, which are large
	// documentSlots has slots for those of documents that are read or written.
	documentSlots    *inflight.Limiter
	openAPIDocuments *openapi.Documents // nil where the upstream is in this process
}

// account counts what requests led to, and cost.
type account struct {
	metrics *metrics
	usage   *usage.Usage
	recent  recent
	refused *reason.Counter
}

// New returns a Gateway made of the given parts.
func New(o Options) *Gateway {
	g := &Gateway{Options: o, visible: newVisible(&o), forwarded: newForwardedStreams()}
	g.Policy = policy.Policy{} // the one in force is g.policy
	g.session = consistency.NewSession(func(gvr schema.GroupVersionResource) bool {
		res, ok := o.Resources.Lookup(gvr)
		return ok && !res.Aggregated
	}, o.Registerer)
	g.account = account{
		metrics: newMetrics(o.Registerer, o.Resources.Known), refused: reason.NewCounter(o.Registerer),
		usage: usage.New(usage.Options{Registerer: o.Registerer}),
	}
	policy.RegisterBudgets(o.Registerer, g.budgets)
	g.memory = memory{
		answers: responses.New(o.Authorizer, maxSavedResponses), documents: responses.New(o.Authorizer, maxSavedDocuments),
		documentSlots: uncounted(maxSavedDocuments),
	}
	if !o.InProcess {
		g.memory.openAPIDocuments = openapi.New(o.Registerer)
	}
	g.slots.init(o.Registerer, g.account.refused)
	g.forwards.transcoder = transcode.New(o.Forwarder, time.Now, o.Registerer)
	g.forwards.redactedAnswers, g.forwards.redactedWatches = uncounted(maxRedactedAnswers), uncounted(maxRedactedWatches)
	g.forwards.collapser = consistency.NewCoalescer(0, time.Now, func(ctx context.Context, r *api.Request) *api.Response {
		return g.forwards.transcoder.Forward(ctx, r, upstream.Credentials{As: upstream.AsGateway}, "") // of all who wait for it
	})
	g.forwards.collapser.Register(o.Registerer)
	g.SetPolicy(o.Policy)
	return g
}

// uncounted returns a limiter whose rejections are counted by its user.
func uncounted(limit int64) *inflight.Limiter {
	return inflight.New(limit, inflight.Overload{}, inflight.Overload{})
}

// init makes the limiters, whose limits SetPolicy sets.
func (s *slots) init(registerer prometheus.Registerer, refused *reason.Counter) {
	over := inflight.NewOverloads(registerer, refused)
	s.inFlight = inflight.New(0, over.Of("short", "limit", reason.ShortLimit), over.Of("short", "share", reason.ShortShare))
	s.longRunning = inflight.New(0, over.Of("long", "limit", reason.LongLimit), over.Of("long", "share", reason.LongShare))
	s.heldBytes = inflight.New(maxHeldBytes, over.Of("bytes", "limit", reason.BytesLimit), over.Of("bytes", "share", reason.BytesShare))
	s.unidentified.Full = over.Of("unidentified", "limit", reason.UnidentifiedLimit)
	s.resumed = uncounted(0) // nobody is rejected
	inflight.RegisterMetrics(registerer, map[string]*inflight.Semaphore{
		"short": &s.inFlight.Semaphore, "long": &s.longRunning.Semaphore, "unidentified": &s.unidentified, "resumed": &s.resumed.Semaphore,
	})
	registerHeldBytes(registerer, &s.heldBytes.Semaphore)
}

// responseSource says where a response came from, for metrics and the audit log.
type responseSource string

const (
	fromGateway   responseSource = "gateway" // health, refusals
	fromCache     responseSource = "cached"
	fromCollapsed responseSource = "collapsed"
	fromUpstream  responseSource = "forwarded"
	// fromRevalidated is the cache after the upstream has told the current versions.
	fromRevalidated responseSource = "revalidated"
)

// exchange is the state of one request. The embedded Facts are those that decisions depend on.
type exchange struct {
	route.Facts
	auditID string
	began   time.Time
	source  responseSource
	// policy is the one in force when the request arrived. It stays the same for the whole request.
	policy *policy.Compiled
	// sender is who sends the request, once that is known. Subject is as whom.
	sender *authn.Identity
	// cost is what the request has cost the upstream so far, without what is forwarded and passed
	// on. end ends a response that goes on.
	cost freshness.Cost
	end  func()
	*readState
	stale   bool // it is answered from the cache because of a budget
	resumed bool // it has a slot of Gateway.resumed
	// limit is the limiter that the request holds a slot of, nil before and afterwards. bytes is
	// what it holds of slots.heldBytes.
	limit *inflight.Limiter
	bytes int64
}

// readState is what is needed only until there is a response to a read.
type readState struct {
	facts route.Reading
	// collection is what is read, objects the one that has the objects of a query in the encoding of
	// the response; version is one that collection is proven to hold, response what was read.
	collection, objects *cache.Collection
	version             uint64
	response            *api.Response
}

// newExchange returns an exchange for r under the policy in force.
func (g *Gateway) newExchange(r *api.Request) *exchange {
	x := &exchange{policy: g.policy.Load(), began: time.Now(), source: fromGateway, readState: new(readState)}
	x.Request, x.Info, x.Reading = r, r.Info(), &x.facts
	return x
}

// user returns the name of the client that holds the request's slot: who authenticated, whomever
// they act as.
func (x *exchange) user() string { return x.sender.User.GetName() }

// anonymous reports whether the request came without credentials and was admitted.
func (x *exchange) anonymous() bool {
	return x.sender != nil && x.sender.Source == authn.Anonymous
}

// release returns what the request holds of the limits.
func (g *Gateway) release(x *exchange) {
	if x.limit != nil {
		x.limit.Release(x.user(), 1)
		x.limit = nil
	}
	if x.bytes > 0 {
		g.slots.heldBytes.Release(x.user(), x.bytes)
		x.bytes = 0
	}
	if x.resumed {
		g.slots.resumed.Release(x.user(), 1)
		x.resumed = false
	}
}

// Serve implements api.Handler.
func (g *Gateway) Serve(ctx context.Context, r *api.Request) *api.Response {
	x := g.newExchange(r)
	x.auditID = r.Header.Get("Audit-Id")
	if x.auditID == "" {
		x.auditID = uuid.NewString()
	}
	x.Pretty = x.Info.Pretty(r.Header.Get("User-Agent"))
	if resp := g.Health.Serve(r, false); resp != nil {
		return g.complete(x, resp)
	}
	if resp := g.rejectBlocked(x); resp != nil {
		return g.complete(x, resp)
	}
	if resp := g.admit(ctx, x); resp != nil {
		return g.complete(x, resp)
	}
	completed := false
	defer func() {
		if !completed {
			g.release(x) // a panic, which the transport contains
		}
	}()
	ctx, resp := g.charge(ctx, x)
	if resp == nil {
		resp = g.impersonate(ctx, x)
	}
	if resp == nil {
		x.Settings = x.policy.Decide(x.Subject.User, x.Request.Header.Get("User-Agent"), x.Info)
		if resp = g.restrict(x); resp == nil {
			resp = g.respond(ctx, x)
		}
	}
	resp = g.complete(x, resp)
	completed = true
	return resp
}

// admit identifies the client and takes a slot for the request. A response is the rejection.
// Reviews whose number the client chooses, for impersonation, are made later, in the client's own
// slot.
func (g *Gateway) admit(ctx context.Context, x *exchange) *api.Response {
	if !g.slots.unidentified.Acquire() {
		return inflight.Rejected()
	}
	defer g.slots.unidentified.Release()
	if resp := g.identify(ctx, x); resp != nil {
		return resp
	}
	x.Request.AttributeTo(g.accountName(x))
	limit := g.slots.inFlight
	long := x.Info.LongRunning() || x.Request.Upgrade != ""
	if long {
		limit = g.slots.longRunning
	}
	if !limit.Acquire(x.user(), 1) {
		return inflight.Rejected()
	}
	x.limit = limit
	if n := heldBytes(x.Request, long); n > 0 {
		if !g.slots.heldBytes.Acquire(x.user(), n) {
			g.release(x)
			return inflight.Rejected()
		}
		x.bytes = n
	}
	return nil
}

// accountName returns the name of the client, unique over all clusters, that is charged for
// response data it does not read.
func (g *Gateway) accountName(x *exchange) string {
	if g.Cluster == "" {
		return x.user()
	}
	return g.Cluster + "/" + x.user()
}

// complete adds the Audit-Id to a response, and what happens once it was written.
func (g *Gateway) complete(x *exchange, resp *api.Response) *api.Response {
	if resp.Upgrade == nil && resp.Status != 101 && !resp.Header.Has("Audit-Id") {
		resp.Header.Add("Audit-Id", x.auditID)
	}
	if x.Request.Proto == "HTTP/2.0" && (x.sender == nil && resp.Status == 401 || x.anonymous()) {
		// HTTP/2 is too cheap for the client and too dear for the server to be kept open
		// for anybody; kube-apiserver does the same (CVE-2023-44487).
		resp.Header.Add("Connection", "close")
	}
	x.Spending.Settle(x.cost.Requests, x.cost.Bytes)
	goesOn := resp.Stream != nil || resp.Upgrade != nil
	if goesOn {
		g.countStream(x, resp)
	}
	done := resp.Done
	resp.Done = func(n int64, err error) {
		g.release(x)
		if done != nil {
			done(n, err)
		}
		g.account.metrics.observe(x, resp.Status, n)
		if !goesOn && !healthz.IsPath(x.Request.Path) {
			g.account.usage.Add(x.client(), x.costOf(resp, n))
			if x.source == fromUpstream {
				x.Spending.SettleBytes(float64(n))
			}
		}
		if resp.Status == 403 {
			g.account.recent.denied(x)
		}
		g.audit(x, auditv1.StageResponseComplete, resp.Status)
	}
	if g.Audit.Enabled() && goesOn {
		resp.Started = func() { g.audit(x, auditv1.StageResponseStarted, resp.Status) }
	}
	return resp
}

// fail responds with err as a Status.
func (x *exchange) fail(err error) *api.Response {
	return api.StatusResponse(err, api.NegotiateStatus(x.Request.Header.Get("Accept"), x.Pretty))
}
