package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// read answers a get, list or watch from the cache or collapsed, or says why it has to
// be forwarded.
func (g *Gateway) read(ctx context.Context, x *exchange) outcome {
	q, why := g.qualify(x)
	if why != reason.NotForwarded {
		return forwardedFor(why)
	}
	if q.isNewer(func() int { return g.Manager.Minor(ctx) }) {
		return forwardedFor(reason.InvalidSelector)
	}
	if refusal := g.permitRead(ctx, x, &q); refusal != nil {
		return answeredWith(refusal)
	}
	if refusal := g.remembered(x); refusal != nil {
		return answeredWith(refusal)
	}
	if err := q.setShard(&g.shards); err != nil {
		return answeredWith(x.fail(err))
	}
	if err := q.setQuery(x.info); err != nil {
		return answeredWith(x.fail(err))
	}
	if q.visible != nil {
		return g.readVisible(ctx, x, q)
	}
	return g.readPermitted(ctx, x, q)
}

// readPermitted answers a read that is permitted.
func (g *Gateway) readPermitted(ctx context.Context, x *exchange, q readQuery) outcome {
	switch {
	case x.info.Verb == "watch":
		return g.watch(ctx, x, q)
	case q.mostRecent() && !q.cacheOnly() && !g.Manager.IsImmediate() && x.mode(q.res) == policy.ModeStrict:
		return g.strict(ctx, x, q)
	}
	return g.cached(ctx, x, q)
}

// readQuery is a read as its parameters say.
type readQuery struct {
	res     *source.Resource
	rep     api.Representation
	options api.ListOptions
	filter  *object.Filter // nil for a get
	query   *query.Query   // nil for most
	// visible are the namespaces that the user may see of all that the read is about, nil for
	// all of them. Those are Within of filter.
	visible *visible.Set
}

// mostRecent reports whether the read asks for the latest state.
func (q *readQuery) mostRecent() bool { return q.options.MostRecent() }

// cacheOnly reports whether the upstream need not know what the read asks for, a part of the
// collection, a query, a redacted view or objects without their managedFields: it is asked for
// its version alone. Of visible namespaces it must not be asked by the gateway, who may see all.
func (q *readQuery) cacheOnly() bool {
	return q.options.ShardSelector != "" || q.query != nil || q.rep.Redacted || q.rep.DropManagedFields || q.visible != nil
}

func negotiate(x *exchange, res *source.Resource) (api.Representation, bool) {
	accept := x.request.Header.Get("Accept")
	if strings.Contains(accept, "application/*") {
		// go-restful, which looks before the handlers of built-in resources do,
		// knows exact types and */* only.
		return api.Representation{}, false
	}
	rep, verdict := api.Negotiate(accept, api.Capabilities{
		List:       x.info.Verb == "list",
		Protobuf:   !res.Custom,
		NoProtobuf: x.redacted,
		Table:      res.Printer != nil && !res.Printer.Traits().NoTables,
	})
	if verdict != api.Serve {
		return rep, false
	}
	if rep.YAML && x.info.Verb == "watch" {
		return rep, false
	}
	rep.Redacted = x.redacted
	rep.DropManagedFields = rep.DropManagedFields || x.settings.DropManagedFields == policy.Yes
	rep.Pretty = x.info.Verb != "watch" && rep.Encoding == api.JSON && !rep.YAML && (rep.Pretty || x.pretty)
	if rep.Transform == api.Table {
		include, ok := api.ParseIncludeObject(x.info.IncludeObject)
		rep.IncludeObject = include
		return rep, ok
	}
	return rep, true
}

// encodingOf is the encoding of the collection that serves rep.
func encodingOf(res *source.Resource, rep api.Representation) api.Encoding {
	if res.Custom || rep.Encoding == api.CBOR {
		return api.JSON
	}
	return rep.Encoding
}

// encoding is that of the collection that answers q: a query reads values in JSON.
func (q *readQuery) encoding() api.Encoding {
	if q.query != nil {
		return api.JSON
	}
	return encodingOf(q.res, q.rep)
}

// collection returns the collection of q's resource in an encoding; without one the outcome
// says what is done instead.
func (g *Gateway) collection(ctx context.Context, x *exchange, q readQuery, enc api.Encoding) (*cache.Collection, outcome) {
	c, err := g.Manager.Collection(ctx, q.res, enc)
	switch {
	case err == nil && g.isCurrent(q.res):
		if q.rep.Transform == api.Table && q.res.Printer.Traits().NoTables {
			return nil, forwardedFor(reason.Representation) // found out when the collection began
		}
		return c, outcome{}
	case err == nil, errors.Is(err, source.ErrRedefined):
		return nil, forwardedFor(reason.Redefined)
	case ctx.Err() != nil:
		return nil, answeredWith(x.fail(err))
	case apierrors.IsTooManyRequests(err):
		g.refused.Count(reason.CacheStarting)
		return nil, answeredWith(x.fail(err))
	}
	g.Logger.Debug("collection cannot be used, forwarding", "resource", q.res.String(), "error", err)
	return nil, forwardedFor(reason.CacheUnavailable)
}

// isCurrent reports whether res is still what the request found when it came: another
// server may serve it now, or another definition be true of it.
func (g *Gateway) isCurrent(res *source.Resource) bool {
	now, ok := g.Resources.Lookup(res.GroupVersionResource)
	return ok && now == res
}

// cached answers a get or list from the cache.
func (g *Gateway) cached(ctx context.Context, x *exchange, q readQuery) outcome {
	c, instead := g.collection(ctx, x, q, q.encoding())
	if c == nil {
		return instead
	}
	req := readRequest(x, q)
	if enc := encodingOf(q.res, q.rep); enc != q.encoding() {
		shown, instead := g.collection(ctx, x, q, enc)
		if shown == nil {
			return instead
		}
		req.ObjectsFrom = shown
	}
	req.User = x.user()
	if q.mostRecent() {
		switch {
		case x.stale, g.holds(ctx, x, c), g.answersStale(x, c):
		case !q.cacheOnly():
			return g.strict(ctx, x, q)
		default: // who asks for another shard shares the proof
			if out, ok := g.prove(ctx, x, c); !ok {
				return out
			}
		}
		req.MostRecent = true
	}
	got := g.Reader.List
	if x.info.Verb == "get" {
		got = g.Reader.Get
	}
	resp, err := got(ctx, c, req)
	switch {
	case errors.Is(err, read.ErrForward):
		if q.options.Continue != "" && !q.cacheOnly() && x.spending.MayAsk() {
			if resp := g.revalidate(ctx, x, q); resp != nil {
				return answeredWith(resp)
			}
		}
		return forwardedBy(err)
	case err != nil:
		resp = x.fail(err)
	}
	age := g.ageOf(c)
	if refusal := g.expired(x, c, age); refusal != nil {
		finish(resp, 0, nil)
		return answeredWith(refusal)
	}
	x.source = fromCache
	warn(resp, c)
	g.markStale(resp, x.ageOf(c, age))
	return answeredWith(resp)
}

// ageOf is how old an answer from c is said to be, if it is as old as age by itself.
func (x *exchange) ageOf(c *cache.Collection, age time.Duration) time.Duration {
	if !x.stale {
		return age
	}
	x.spending.Exceeded.Rule.Stale.Inc()
	return max(age, behind(c))
}

// prove finds out that c holds the most recent state; if it cannot, the outcome says what
// becomes of the request.
func (g *Gateway) prove(ctx context.Context, x *exchange, c *cache.Collection) (outcome, bool) {
	switch _, err := g.fresh(ctx, x, c); {
	case errors.Is(err, errOverBudget):
		return answeredWith(g.overBudget(x)), false
	case err != nil:
		return forwardedFor(reason.Unproven), false
	}
	return outcome{}, true
}

func readRequest(x *exchange, q readQuery) *read.Request {
	return &read.Request{
		Namespace:   x.info.Namespace,
		Name:        x.info.Name,
		Options:     q.options,
		Query:       q.query,
		Filter:      q.filter,
		Rep:         q.rep,
		Compression: api.NegotiateCompression(x.request.Header.Get("Accept-Encoding")),
		IfNoneMatch: x.request.Header.Get("If-None-Match"),
	}
}

// strict answers a most-recent read that the upstream has to be asked for.
func (g *Gateway) strict(ctx context.Context, x *exchange, q readQuery) outcome {
	if !x.spending.MayAsk() {
		if c := g.Manager.CollectionIfSynced(q.res, q.encoding()); c != nil && g.answersStale(x, c) {
			return g.cached(ctx, x, q)
		}
		return answeredWith(g.overBudget(x))
	}
	if resp := g.revalidate(ctx, x, q); resp != nil {
		return answeredWith(resp)
	}
	out := g.collapse(ctx, x, q.res)
	if out.answer != nil && !g.isCurrent(q.res) {
		// Another server may have given the answer, to the gateway itself.
		finish(out.answer, 0, nil)
		return forwardedFor(reason.Redefined)
	}
	return out
}

// revalidate answers a list from the cache once the upstream has told which objects
// are current; nil when that cannot be.
func (g *Gateway) revalidate(ctx context.Context, x *exchange, q readQuery) *api.Response {
	if x.info.Verb != "list" || !revalidates(q.res, q.rep) {
		return nil
	}
	c := g.Manager.CollectionIfSynced(q.res, encodingOf(q.res, q.rep))
	if c == nil {
		return nil
	}
	req := readRequest(x, q)
	resp, err := g.Reader.Revalidate(ctx, c, req)
	x.asked.Requests += req.Cost.Requests
	x.asked.Bytes += req.Cost.Bytes
	if err != nil {
		if ctx.Err() != nil {
			return x.fail(err)
		}
		g.Logger.Debug("list cannot be revalidated", "resource", q.res.String(), "error", err)
		return nil
	}
	x.source = fromRevalidated
	warn(resp, c)
	return resp
}

// revalidates reports whether names and versions are what the upstream can be asked
// for instead of rep. Metadata is what they are taken from, and rows alone cost even less.
// What an aggregated API server means by a version is its own affair.
func revalidates(res *source.Resource, rep api.Representation) bool {
	rowsAlone := rep.Transform == api.Table && rep.IncludeObject == api.IncludeNone
	return rep.Transform != api.PartialMetadata && !rowsAlone && (res.Custom || res.Printer != nil)
}

// warn adds what the upstream warns of in every answer of the resource.
func warn(resp *api.Response, c *cache.Collection) {
	for _, w := range c.Warnings() {
		resp.Header.Add("Warning", w)
	}
}

// holds reports whether c may answer a most-recent read: it is known to hold the
// most recent state, or the read is in session mode and c holds what that asks for.
func (g *Gateway) holds(ctx context.Context, x *exchange, c *cache.Collection) bool {
	if err := c.Freshness().FreshAtOnce(ctx); !errors.Is(err, source.ErrUnsupported) {
		return err == nil
	}
	if x.mode(c.Resource()) == policy.ModeStrict {
		return false
	}
	if g.holdsOffline(ctx, x, c) {
		return true
	}
	state := c.State()
	if state.Phase != reflector.Synced {
		return false
	}
	if age := max(time.Since(state.LastContact), state.Delay); x.policy.Consistency.MaxStaleness > 0 && age > x.policy.Consistency.MaxStaleness {
		return false
	}
	return g.session.hold(ctx, c, func(ctx context.Context) (uint64, error) { return g.fresh(ctx, x, c) }) == nil
}

// fresh returns a version that c holds and that is as new as x.
func (g *Gateway) fresh(ctx context.Context, x *exchange, c *cache.Collection) (uint64, error) {
	if !x.spending.MayAsk() {
		return 0, errOverBudget
	}
	return c.Freshness().Fresh(ctx, &x.asked)
}

// collapse answers a most-recent read together with others that want the same.
func (g *Gateway) collapse(ctx context.Context, x *exchange, res *source.Resource) outcome {
	if x.redacted {
		return forwardedFor(reason.Unproven) // what is shared is whole
	}
	what := refusal{x.info.Verb, res.GroupResource(), x.info.Namespace}
	if g.refusals.has(what) {
		return forwardedFor(reason.GatewayRefused)
	}
	resp, err := g.collapser.do(ctx, x.request, x.pretty, &x.asked)
	switch {
	case errors.Is(err, errNotCollapsible):
		return forwardedFor(reason.TooLargeToShare)
	case errors.Is(err, errAllHeld):
		return forwardedFor(reason.NoRoomToShare)
	case err != nil:
		return forwardedFor(reason.SharedFailed)
	}
	if resp.Status == 401 || resp.Status == 403 || resp.Status == 429 {
		// The gateway itself may not: as the client then.
		if resp.Status == 403 {
			g.refusals.add(what)
		}
		finish(resp, 0, nil)
		return forwardedFor(reason.GatewayRefused)
	}
	x.source = fromCollapsed
	return answeredWith(resp)
}

// watch answers a watch from the multiplexer.
func (g *Gateway) watch(ctx context.Context, x *exchange, q readQuery) outcome {
	c, instead := g.collection(ctx, x, q, encodingOf(q.res, q.rep))
	if c == nil {
		return instead
	}
	age := g.ageOf(c)
	if refusal := g.expired(x, c, age); refusal != nil {
		return answeredWith(refusal)
	}
	pace, err := x.pace()
	if err != nil {
		return answeredWith(x.fail(err))
	}
	req := &watch.Request{Filter: q.filter, Options: q.options, Rep: q.rep, Message: messages(x, q.rep), Pace: pace, Client: watchClient(x)}
	if q.filter.Empty() {
		req.Filter = nil // all objects; the watch keeps none for it
	}
	if g.CompressWatchLists && req.Message == nil {
		req.Compression = api.NegotiateCompression(x.request.Header.Get("Accept-Encoding"))
	}
	if q.options.ResourceVersion == "" && !q.options.UnmarkedStart {
		version, err := g.current(ctx, x, c)
		switch {
		case errors.Is(err, errOverBudget):
			return answeredWith(g.overBudget(x))
		case err != nil:
			return forwardedFor(reason.Unproven)
		}
		req.MostRecent = version
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
		g.recent.endedWatch(x, began, why)
	}
	if q.visible == nil {
		x.resumed = g.resumed.Acquire(x.user(), 1)
	} else if !q.visible.Hold() {
		return answeredWith(g.visibleLimit(x))
	}
	req.ForwardExpired = x.resumed
	resp, end, err := g.Watches.Watch(ctx, c, req)
	if err != nil && q.visible != nil {
		q.visible.Release()
	}
	if x.resumed && errors.Is(err, watchmux.ErrExpired) {
		// The upstream may continue it. A collection that has just begun has no
		// history, and whoever listed before that must not be told to list again.
		return forwardedBy(err)
	}
	if x.resumed {
		g.resumed.Release(x.user(), 1)
		x.resumed = false
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return answeredWith(x.fail(err))
	case err != nil:
		return forwardedBy(err)
	case q.visible != nil:
		registration = g.Revocation.RegisterVisible(x.subject, q.visible, end)
	default:
		registration = g.Revocation.Register(x.subject, authz.AttributesOf(x.info), x.decision, end)
	}
	registered.Done()
	x.source, x.end = fromCache, func() { end(g.whyEnded(x)) }
	if req.Message != nil {
		resp.Status, resp.Header = 101, websocket.Header(x.request)
		resp.Stream = websocket.New(resp.Stream, g.panics)
	} else {
		warn(resp, c)
	}
	if pace.Coalesce > 0 {
		resp.Header.Add(coalesceHeader, pace.Coalesce.String())
	}
	g.markStale(resp, x.ageOf(c, age))
	return answeredWith(resp)
}

// watchClient is what is told of a watch while it is open.
func watchClient(x *exchange) watch.Client {
	return watch.Client{
		User: x.subject.User.GetName(), UserAgent: x.request.Header.Get("User-Agent"),
		Namespace: x.info.Namespace, LabelSelector: x.info.LabelSelector, FieldSelector: x.info.FieldSelector,
	}
}

// messages is how the events of a watch become messages over a WebSocket: of text where
// the encoding is; nil over plain HTTP.
func messages(x *exchange, rep api.Representation) func(dst []byte, size int) []byte {
	switch {
	case x.request.Upgrade == "":
		return nil
	case rep.Encoding != api.JSON:
		return websocket.AppendBinaryHead
	}
	return websocket.AppendTextHead
}

// current returns a version that the collection must hold for a watch from the
// most recent state.
func (g *Gateway) current(ctx context.Context, x *exchange, c *cache.Collection) (uint64, error) {
	if g.holds(ctx, x, c) || g.answersStale(x, c) {
		return c.RV(), nil
	}
	return g.fresh(ctx, x, c)
}
