package proxy

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// New returns a Gateway made of the given parts.
func New(o Options) *Gateway {
	g := &Gateway{Options: o, panics: contain.New(o.Registerer, o.Logger), visible: newVisible(&o), forwarded: newForwardedStreams()}
	g.Policy = policy.Policy{} // the one in force is g.policy
	g.session = consistency.NewSession(func(gvr schema.GroupVersionResource) bool {
		res, ok := o.Resources.Lookup(gvr)
		return ok && !res.Aggregated
	}, o.Registerer)
	g.account = account{
		metrics: newMetrics(o.Registerer, o.Resources.Known), rejected: reason.NewCounter(o.Registerer),
		usage: usage.New(usage.Options{Registerer: o.Registerer}),
	}
	policy.RegisterBudgets(o.Registerer, g.budgets)
	g.memory = memory{
		responses: responses.New(o.Authorizer, maxSavedResponses), documents: responses.New(o.Authorizer, maxSavedDocuments),
		documentSlots: uncounted(maxSavedDocuments),
	}
	if !o.InProcess {
		g.memory.openAPIDocuments = openapi.New(o.Registerer)
	}
	g.slots.init(o.Registerer, g.account.rejected)
	g.forwards.redactedResponses, g.forwards.redactedWatches = uncounted(maxRedactedResponses), uncounted(maxRedactedWatches)
	g.forwards.collapser = consistency.NewCoalescer(0, time.Now, func(ctx context.Context, r *api.Request) *api.Response {
		return o.Forwarder.Forward(ctx, r, upstream.Credentials{As: upstream.AsGateway})
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
func (s *slots) init(registerer prometheus.Registerer, rejected *reason.Counter) {
	over := inflight.NewOverloads(registerer, rejected)
	s.inFlight = inflight.New(0, over.Of("short", "limit", reason.ShortLimit), over.Of("short", "share", reason.ShortShare))
	s.longRunning = inflight.New(0, over.Of("long", "limit", reason.LongLimit), over.Of("long", "share", reason.LongShare))
	s.longRequestBytes = inflight.New(maxLongRequestBytes, over.Of("bytes", "limit", reason.BytesLimit), over.Of("bytes", "share", reason.BytesShare))
	s.unidentified.Full = over.Of("unidentified", "limit", reason.UnidentifiedLimit)
	s.resumed = uncounted(0) // nobody is rejected
	inflight.RegisterMetrics(registerer, map[string]*inflight.Semaphore{
		"short": &s.inFlight.Semaphore, "long": &s.longRunning.Semaphore, "unidentified": &s.unidentified, "resumed": &s.resumed.Semaphore,
	})
	registerLongRequestBytes(registerer, &s.longRequestBytes.Semaphore)
}

// newExchange returns an exchange for r under the policy in force.
func (g *Gateway) newExchange(r *api.Request) *exchange {
	x := &exchange{policy: g.policy.Load(), began: time.Now(), source: response.FromGateway, readState: new(readState)}
	x.Request, x.Info, x.Reading = r, r.Info(), &x.facts
	return x
}

// release returns what the request holds of the limits.
func (g *Gateway) release(x *exchange) {
	if x.limit != nil {
		x.limit.Release(x.user(), 1)
		x.limit = nil
	}
	if x.bytes > 0 {
		g.slots.longRequestBytes.Release(x.user(), int64(x.bytes))
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
	if healthz.IsPath(r.Path) && !g.InProcess {
		return g.complete(x, g.Health.Serve(r, false))
	}
	completed := false
	defer func() {
		if !completed {
			g.release(x) // a panic, which the transport contains
			x.span.End(500, string(response.FromGateway), 0)
			x.audited.Panicked()
		}
	}()
	resp := g.complete(x, g.serve(ctx, x))
	completed = true
	return resp
}

// serve admits a request and responds to it.
func (g *Gateway) serve(ctx context.Context, x *exchange) *api.Response {
	rejection := g.rejectBlocked(x)
	if rejection == nil {
		if rejection = g.admit(ctx, x); rejection != nil && rejection.Status == 429 && x.sender == nil {
			return rejection // as many as clients like, so they are not recorded
		}
	}
	if failed := g.beginAudit(ctx, x); failed != nil {
		return failed
	}
	if rejection != nil {
		return rejection
	}
	ctx, resp := g.charge(x.span.Context(ctx), x)
	if resp == nil {
		resp = g.impersonate(ctx, x)
	}
	if resp == nil {
		x.Settings = x.policy.Decide(x.Subject.User, x.Request.Header.Get("User-Agent"), x.Info)
		if resp = g.restrict(x); resp == nil {
			resp = g.respond(ctx, x)
		}
	}
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
	if healthz.IsPath(x.Request.Path) {
		return nil // as exempt from limits as in kube-apiserver
	}
	limit := g.slots.inFlight
	long := x.Info.LongRunning() || x.Request.Upgrade != ""
	if long {
		limit = g.slots.longRunning
	}
	if !limit.Acquire(x.user(), 1) {
		return inflight.Rejected()
	}
	x.limit = limit
	if !long {
		return nil
	}
	if n := longRequestBytes(x.Request); n > 0 {
		if !g.slots.longRequestBytes.Acquire(x.user(), n) {
			g.release(x)
			return inflight.Rejected()
		}
		x.bytes = int32(n) //nolint:gosec // headers and selectors are limited to far less
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

// complete adds the Audit-Id to a response, and the hooks that run after it was written.
func (g *Gateway) complete(x *exchange, resp *api.Response) *api.Response {
	if resp.Upgrade == nil && resp.Status != 101 && !resp.Header.Has("Audit-Id") {
		resp.Header.Add("Audit-Id", x.auditID)
	}
	if x.Request.Proto == "HTTP/2.0" && (x.sender == nil && resp.Status == 401 || x.anonymous()) {
		// HTTP/2 connections of unauthenticated clients are closed, because HTTP/2 attacks are
		// cheap for the client and expensive for the server. kube-apiserver does the same
		// (CVE-2023-44487).
		resp.Header.Add("Connection", "close")
	}
	x.Budgets.Settle(x.cost.Requests, x.cost.Bytes)
	goesOn := resp.Stream != nil || resp.Upgrade != nil
	var charged *policy.ChargedBody
	switch {
	case goesOn:
		g.countStream(x, resp)
	case x.source == response.FromUpstream:
		charged = x.Budgets.ChargeBody(resp)
	}
	done := resp.Done
	resp.Done = func(n int64, err error) {
		g.release(x)
		if done != nil {
			done(n, err)
		}
		g.account.metrics.observe(x, resp.Status, n)
		x.span.End(resp.Status, string(x.source), n)
		if !goesOn && !healthz.IsPath(x.Request.Path) {
			g.account.usage.Add(x.client(), x.costOf(resp, n))
			if x.source == response.FromUpstream {
				x.Budgets.SettleBytes(float64(n - charged.Paid()))
			}
		}
		if resp.Status == 403 {
			g.account.recent.denied(x)
		}
	}
	g.audit(x, resp)
	return resp
}
