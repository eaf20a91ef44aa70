package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// findCollection finds the collection that a read is served from, and for a query the one that has
// the objects in the encoding of the response.
func (g *Gateway) findCollection(ctx context.Context, x *exchange) (resp *api.Response) {
	if x.collection, resp = g.collectionOf(ctx, x, x.Query.Encoding()); x.collection == nil {
		return resp
	}
	if enc := x.Query.ObjectEncoding(); enc != x.Query.Encoding() {
		if x.objects, resp = g.collectionOf(ctx, x, enc); x.objects == nil {
			return resp
		}
	}
	x.Collection = route.Yes
	if x.Info.Verb == "watch" {
		g.age(x)
		x.ParsePace()
	}
	return nil
}

// collectionOf returns the collection of the resource in an encoding. Without one there is a
// response, or the reason is in x.
func (g *Gateway) collectionOf(ctx context.Context, x *exchange, enc api.Encoding) (*cache.Collection, *api.Response) {
	res := x.Query.Resource
	x.Collection = route.No
	c, err := g.Manager.Collection(ctx, res, enc)
	switch {
	case err == nil && g.isCurrent(res):
		if x.Query.Rep.Transform == api.Table && res.Printer.Traits().NoTables {
			x.Missing = reason.Representation // found out when the collection began
			return nil, nil
		}
		return c, nil
	case err == nil, errors.Is(err, source.ErrRedefined):
		x.Missing = reason.Redefined
		return nil, nil
	case ctx.Err() != nil:
		return nil, x.fail(err)
	case apierrors.IsTooManyRequests(err):
		g.countRejected(x, reason.CacheStarting)
		return nil, x.fail(err)
	}
	g.Logger.Debug("collection cannot be used, forwarding", "resource", res.String(), "error", err)
	x.Missing = reason.CacheUnavailable
	return nil, nil
}

// isCurrent reports whether res is still the resource that the request found: another server may
// serve it by now, or another definition apply.
func (g *Gateway) isCurrent(res *source.Resource) bool {
	now, ok := g.Resources.Lookup(res.GroupVersionResource)
	return ok && now == res
}

// age adds how old the state of the collection is.
func (g *Gateway) age(x *exchange) {
	x.Unreachable = g.isUnreachable()
	x.FindAge(x.collection)
}

// readCache reads a get or list from the cache.
func (g *Gateway) readCache(ctx context.Context, x *exchange) *api.Response {
	req := readRequest(x)
	req.User, req.MostRecent = x.user(), x.Query.MostRecent()
	if x.objects != nil {
		req.ObjectsFrom = x.objects
	}
	got := g.Reader.List
	if x.Info.Verb == "get" {
		got = g.Reader.Get
	}
	resp, err := got(ctx, x.collection, req)
	switch {
	case errors.Is(err, read.ErrForward):
		x.CacheErr, x.CacheWhy = err, read.ForwardReason(err)
		return nil
	case err != nil:
		resp = x.fail(err)
	}
	x.Read, x.response = true, resp
	g.age(x)
	return nil
}

// respondCached returns the response that readCache has read.
func (g *Gateway) respondCached(x *exchange) *api.Response {
	x.source = response.FromCache
	warn(x.response, x.collection)
	g.markStale(x.response, x.ageOf(x.collection, x.Age))
	return g.markRead(x, x.response)
}

// queryHeader says in a response that the query parameters were applied.
const queryHeader = "Kubeweir-Query"

// markRead adds to a response from the cache which part of the collection it shows.
func (g *Gateway) markRead(x *exchange, resp *api.Response) *api.Response {
	if resp.Status >= 400 || resp.Status == 101 {
		return resp
	}
	if x.Query.Visible != nil {
		resp.Header.Add("Warning", visibleWarning(x.Query.Visible))
	}
	if x.Query.Query != nil {
		resp.Header.Add(queryHeader, "applied")
	}
	return resp
}

// ageOf returns the age that a response from c reports, if the state of c is as old as age.
func (x *exchange) ageOf(c *cache.Collection, age time.Duration) time.Duration {
	if !x.stale {
		return age
	}
	x.Budgets.Exceeded.Rule.Stale.Add(1)
	return max(age, c.State().Staleness(), 1)
}

func readRequest(x *exchange) *read.Request {
	q := &x.Query
	return &read.Request{
		Namespace:   x.Info.Namespace,
		Name:        x.Info.Name,
		Options:     q.Options,
		Query:       q.Query,
		Filter:      q.Filter,
		Rep:         q.Rep,
		Compression: api.NegotiateCompression(x.Request.Header.Get("Accept-Encoding")),
		IfNoneMatch: x.Request.Header.Get("If-None-Match"),
	}
}

// revalidate serves a list from the cache once the upstream has told which objects are current; nil
// if it cannot.
func (g *Gateway) revalidate(ctx context.Context, x *exchange) *api.Response {
	res := x.Query.Resource
	c := g.Manager.CollectionIfSynced(res, x.Query.ObjectEncoding())
	if c == nil {
		return nil
	}
	req := readRequest(x)
	resp, err := g.Reader.Revalidate(ctx, c, req)
	x.cost.Requests += req.Cost.Requests
	x.cost.Bytes += req.Cost.Bytes
	if err != nil {
		if ctx.Err() != nil {
			return x.fail(err)
		}
		g.Logger.Debug("list cannot be revalidated", "resource", res.String(), "error", err)
		return nil
	}
	x.source = response.FromRevalidated
	warn(resp, c)
	return resp
}

// warn adds the upstream's warnings, which every response of the resource has.
func warn(resp *api.Response, c *cache.Collection) {
	for _, w := range c.ListMeta().Warnings {
		resp.Header.Add("Warning", w)
	}
}

// holds reports whether c may serve a most-recent read: it is known to hold the most recent state,
// or the read is in session mode and c holds what that requires.
func (g *Gateway) holds(ctx context.Context, x *exchange, c *cache.Collection) bool {
	if err := c.Freshness().FreshAtOnce(ctx); !errors.Is(err, source.ErrUnsupported) {
		return err == nil
	}
	if c.Resource().Aggregated || x.ClientMode() == policy.ModeStrict {
		return false
	}
	if g.holdsOffline(ctx, x, c) {
		return true
	}
	state := c.State()
	if state.Phase != reflector.Synced {
		return false
	}
	if most := x.policy.Consistency.MaxStaleness; most > 0 && state.Staleness() > most {
		return false
	}
	return g.session.Hold(ctx, c, func(ctx context.Context) (uint64, error) { return g.fresh(ctx, x, c) }) == nil
}

// fresh returns a version that c holds and that is as new as x.
func (g *Gateway) fresh(ctx context.Context, x *exchange, c *cache.Collection) (uint64, error) {
	if !x.Budgets.MaySend() {
		return 0, errOverBudget
	}
	return c.Freshness().Fresh(ctx, &x.cost)
}

// coalesce serves a most-recent read together with identical ones. Without a response it returns
// the reason.
func (g *Gateway) coalesce(ctx context.Context, x *exchange) (*api.Response, reason.Forward) {
	res := x.Query.Resource
	what := consistency.Rejected{Verb: x.Info.Verb, Resource: res.GroupResource(), Namespace: x.Info.Namespace}
	if g.forwards.rejections.Has(what) {
		return nil, reason.GatewayRejected
	}
	resp, err := g.forwards.collapser.Do(ctx, x.Request, x.Pretty, &x.cost)
	switch {
	case errors.Is(err, consistency.ErrTooLarge):
		return nil, reason.TooLargeToShare
	case errors.Is(err, consistency.ErrNoRoom):
		return nil, reason.NoRoomToShare
	case err != nil:
		return nil, reason.SharedFailed
	}
	if resp.Status == 401 || resp.Status == 403 || resp.Status == 429 {
		// The gateway itself may not: as the client then.
		if resp.Status == 403 {
			g.forwards.rejections.Add(what)
		}
		response.Finish(resp, 0, nil)
		return nil, reason.GatewayRejected
	}
	if !g.isCurrent(res) {
		// Another server may have given the answer, to the gateway itself.
		response.Finish(resp, 0, nil)
		return nil, reason.Redefined
	}
	x.source = response.FromCollapsed
	return resp, reason.NotForwarded
}

// watch serves a watch from the multiplexer.
func (g *Gateway) watch(ctx context.Context, x *exchange) *api.Response {
	q, c := &x.Query, x.collection
	req := &watch.Request{Filter: q.Filter, Options: q.Options, Rep: q.Rep, Message: messages(x, q.Rep), Pace: x.Pace, Client: watchClient(x)}
	if q.Filter.Empty() {
		req.Filter = nil // all objects; the watch keeps none for it
	}
	if g.CompressWatchLists && req.Message == nil {
		req.Compression = api.NegotiateCompression(x.Request.Header.Get("Accept-Encoding"))
	}
	if q.Options.ResourceVersion == "" && !q.Options.UnmarkedStart {
		if req.MostRecent = x.version; x.Fresh != route.Yes {
			req.MostRecent = c.RV()
		}
	}
	// A revocation must be able to end the watch from its first moment on, and
	// the watch to withdraw from being followed whenever it ends.
	var registration *revocation.Registration
	var registered sync.WaitGroup
	registered.Add(1)
	began := time.Now()
	req.Ended = func(why reason.WatchEnd) {
		registered.Wait()
		registration.Close()
		g.account.recent.endedWatch(x, began, why)
	}
	if q.Visible == nil {
		// The upstream may continue a watch from before the history if that cannot be extended.
		req.ForwardExpired = func() bool {
			x.resumed = g.slots.resumed.Acquire(x.user(), 1)
			return x.resumed
		}
	} else if !q.Visible.Hold() {
		return g.visibleLimit(x)
	}
	resp, end, err := g.Watches.Watch(ctx, c, req)
	if err != nil && q.Visible != nil {
		q.Visible.Release()
	}
	switch {
	case err != nil && ctx.Err() != nil && !x.resumed:
		return x.fail(err)
	case err != nil:
		x.CacheErr, x.CacheWhy = err, read.ForwardReason(err)
		return nil
	case q.Visible != nil:
		registration = g.Revocation.RegisterVisible(x.Subject, q.Visible, end)
	default:
		registration = g.Revocation.Register(x.Subject, authz.AttributesOf(x.Info), x.Decision, end)
	}
	registered.Done()
	x.source, x.end = response.FromCache, func() { end(g.whyEnded(x)) }
	if req.Message != nil {
		resp.Status, resp.Header = 101, websocket.Header(x.Request)
		resp.Stream = websocket.New(resp.Stream, g.panics)
	} else {
		warn(resp, c)
	}
	if x.Pace.Coalesce > 0 {
		resp.Header.Add(coalesceHeader, x.Pace.Coalesce.String())
	}
	g.markStale(resp, x.ageOf(c, x.Age))
	return g.markRead(x, resp)
}

// coalesceHeader is the response header with the delivery interval.
const coalesceHeader = "Kubeweir-Coalesce"

// watchClient describes the client of a watch, for operators.
func watchClient(x *exchange) watch.Client {
	return watch.Client{
		User: x.Subject.User.GetName(), UserAgent: x.Request.Header.Get("User-Agent"),
		Namespace: x.Info.Namespace, LabelSelector: x.Info.LabelSelector, FieldSelector: x.Info.FieldSelector,
	}
}

// messages is how the events of a watch become messages over a WebSocket: of text where
// the encoding is; nil over plain HTTP.
func messages(x *exchange, rep api.Representation) func(dst []byte, size int) []byte {
	switch {
	case x.Request.Upgrade == "":
		return nil
	case rep.Encoding != api.JSON:
		return websocket.AppendBinaryHead
	}
	return websocket.AppendTextHead
}
