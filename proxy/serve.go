package proxy

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/proxy/tracing"
)

// respond serves a request whose client and settings are known: it asks package route what to do,
// does it and adds what it learned, until there is a response.
func (g *Gateway) respond(ctx context.Context, x *exchange) *api.Response {
	g.gather(&x.Facts, x.policy, g.Resources)
	defer func() { x.Reading, x.readState = nil, nil }() // a stream keeps x
	for range route.MaxSteps {
		d, began := x.Next(), x.span.Now()
		resp := g.execute(ctx, x, d)
		x.span.Waited(waitOf(d.Action), began)
		if resp != nil {
			g.addFlow(x, resp)
			return resp
		}
	}
	return x.fail(apierrors.NewInternalError(errors.New("no decision about the request")))
}

// waitOf returns what a request waits for during an action.
func waitOf(a route.Action) tracing.Wait {
	switch a {
	case route.Authorize, route.FindNamespaces:
		return tracing.Authorization
	case route.FindCollection:
		return tracing.Collection
	case route.CheckFreshness, route.Revalidate:
		return tracing.Freshness
	case route.ReadCache:
		return tracing.Read
	case route.Forward, route.ForwardShard, route.Coalesce:
		return tracing.Upstream
	}
	return tracing.Nothing
}

// gather adds what is known about a request without asking, waiting or paying.
func (g *Gateway) gather(x *route.Facts, p *policy.Compiled, resources route.Resources) {
	x.Unreachable, x.Immediate = g.isUnreachable(), g.Manager.IsImmediate()
	x.OfflineTTL, x.MaxStaleness = p.Offline.TTL, p.Consistency.MaxStaleness
	x.PrintsTables = x.Redacted && x.Info.IsResourceRequest && printsTables(resources, x.Info)
	if !p.HasBudgets {
		x.Budget = route.Yes
	}
	read := x.IsRead()
	if read || x.Info.Query != nil {
		x.Qualify(resources)
	}
	d, r := &x.Documents, x.Request
	switch {
	case read && x.Unqualified == reason.UnknownResource:
		d.Discovery = !x.Redacted && x.Info.Verb != "watch" && g.cachesDiscovery(x)
	case read || x.Info.IsWrite() && !policy.IsSelfReview(r):
	default:
		d.SelfReview = x.Settings.SelfReviews == policy.Yes && policy.IsSelfReview(r) && g.memory.responses.Covers(x.Subject)
		d.OfflineDiscovery = g.Discovered != nil && !x.Info.IsResourceRequest && r.Method == "GET" && x.Unreachable && !x.Subject.UpstreamDecides && x.AllowsOffline()
		d.Discovery = !x.Info.IsResourceRequest && isDiscovery(r) && g.cachesDiscovery(x)
		d.OpenAPI = g.memory.openAPIDocuments != nil && openapi.IsDocument(r)
	}
}

// execute does what was decided. Without a response, it has added to the facts about the request.
func (g *Gateway) execute(ctx context.Context, x *exchange, d route.Decision) (resp *api.Response) {
	switch d.Action {
	case route.Reject:
		return g.reject(ctx, x, d)
	case route.Respond:
		return g.respondCached(x)
	case route.Forward:
		return g.observeRead(x, g.forwardCounted(ctx, x, d.Why))
	case route.ForwardShard:
		return g.observeRead(x, g.forwardShard(ctx, x, d))
	case route.ReadCache, route.Revalidate, route.Coalesce:
		if g.mustQueue(x, d.Action) {
			return g.queue(ctx, x, d)
		}
		return g.read(ctx, x, d)
	case route.SelfReview:
		resp = g.selfReview(ctx, x)
	case route.OfflineDiscovery:
		resp = g.offlineDiscovery(ctx, x)
	case route.Discovery:
		if resp = g.discovery(ctx, x); resp != nil && x.IsRead() && x.source == response.FromUpstream {
			x.span.SetReason(d.Why.String())
			g.countForwarded(ctx, x, d.Why, resp)
		}
	case route.OpenAPI:
		resp = g.openAPI(ctx, x)
	default:
		return g.learn(ctx, x, d.Action)
	}
	if resp == nil {
		x.Documents.Clear(d.Action)
	}
	return resp
}

// read does one of the actions that read objects for the client.
func (g *Gateway) read(ctx context.Context, x *exchange, d route.Decision) (resp *api.Response) {
	switch d.Action {
	case route.Revalidate:
		resp = g.observeRead(x, g.revalidate(ctx, x))
		x.NotRevalidated = resp == nil
	case route.Coalesce:
		resp, x.NotCoalesced = g.coalesce(ctx, x)
		g.observeRead(x, resp)
	default:
		x.stale = d.Stale
		if x.Info.Verb == "watch" {
			return g.watch(ctx, x)
		}
		return g.readCache(ctx, x)
	}
	return resp
}

// observeRead records the response of the upstream to a read that the cache could not serve in session mode. It
// returns the response.
func (g *Gateway) observeRead(x *exchange, resp *api.Response) *api.Response {
	if resp != nil && resp.Status == 200 && x.Current == route.No && x.ClientMode() == policy.ModeSession {
		g.session.ObserveRead(x.Query.Resource.GroupVersionResource)
	}
	return resp
}

// learn finds out a fact that a decision depends on. A response means that there is nothing left to
// decide.
func (g *Gateway) learn(ctx context.Context, x *exchange, a route.Action) *api.Response {
	switch a {
	case route.ParseParameters:
		x.ParseParameters(&g.shards)
	case route.FindRelease:
		x.Release, x.ReleaseKnown = g.Manager.Minor(ctx), true
	case route.Authorize:
		return g.authorize(ctx, x)
	case route.FindNamespaces:
		return g.findNamespaces(ctx, x)
	case route.FindCollection:
		return g.findCollection(ctx, x)
	case route.CheckCurrent:
		x.Current = route.StateOf(g.holds(ctx, x, x.collection))
		x.StaleAllowed = x.AllowsStale(x.collection)
	case route.CheckFreshness:
		version, err := g.fresh(ctx, x, x.collection)
		x.version, x.Fresh = version, route.StateOf(err == nil)
	case route.Charge:
		x.Budget = route.StateOf(x.Budgets.MaySend())
		if x.Budget == route.No && x.Budgets.Cached && x.collection == nil && x.Query.Resource != nil {
			x.StaleAllowed = x.AllowsStale(g.Manager.CollectionIfSynced(x.Query.Resource, x.Query.Encoding()))
		}
	}
	return nil
}

// reject responds with an error of package route, and counts it.
func (g *Gateway) reject(ctx context.Context, x *exchange, d route.Decision) *api.Response {
	if x.response != nil {
		response.Finish(x.response, 0, nil)
	}
	resp := x.fail(d.Err)
	if d.Rejection == 0 || ctx.Err() != nil {
		return resp
	}
	g.countRejected(x, d.Rejection)
	switch d.Rejection {
	case reason.OverBudget:
		x.Budgets.Exceeded.Rule.Rejected.Add(1)
	case reason.Redacted:
		x.Decision.Reason = d.Err.Error()
	}
	return resp
}
