package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/watchmux"
)

// read answers a get, list or watch of res from the cache or collapsed. nil
// means that the request must be forwarded: whatever cannot be answered exactly
// as upstream would, errors in the parameters included, is upstream's to answer.
func (g *Gateway) read(ctx context.Context, x *exchange, res *cache.Resource) *api.Response {
	form, ok := negotiate(x, res)
	if !ok {
		return nil
	}
	q, ok := parseRead(x.info, res)
	if !ok {
		return nil
	}
	q.rep = form
	if resp := g.permit(ctx, x); resp != nil {
		return resp
	}
	switch {
	case x.info.Verb == "watch":
		return g.watch(ctx, x, res, q)
	case q.mostRecent() && !g.Manager.Prompt() && g.mode(x, res) == ModeStrict:
		return g.strict(ctx, x, res, q)
	}
	return g.cached(ctx, x, res, q)
}

// mode says how a most-recent read of res is answered.
func (g *Gateway) mode(x *exchange, res *cache.Resource) Mode {
	if res.Aggregated {
		return ModeStrict // the answers to writes do not tell how new the cache must be
	}
	return g.Consistency.modeFor(x.subject.User, x.request.Header.Get("User-Agent"), res)
}

// readQuery is a read as its parameters say.
type readQuery struct {
	rep     api.Representation
	options api.ListOptions
	filter  *object.Filter // nil for a get
}

// mostRecent reports whether the read asks for the latest state.
func (q *readQuery) mostRecent() bool { return q.options.MostRecent() }

func negotiate(x *exchange, res *cache.Resource) (api.Representation, bool) {
	accept := x.request.Header.Get("Accept")
	if strings.Contains(accept, "application/*") {
		// go-restful, which looks before the handlers of built-in resources do,
		// knows exact types and */* only.
		return api.Representation{}, false
	}
	rep, verdict := api.Negotiate(accept, api.Capabilities{
		List:     x.info.Verb == "list",
		Protobuf: !res.Custom,
		Table:    res.Printer != nil && !res.Printer.Traits().NoTables,
	})
	if verdict != api.Serve {
		return rep, false
	}
	rep.Pretty = x.info.Verb != "watch" && rep.Encoding == api.JSON && (rep.Pretty || x.pretty)
	if rep.Transform == api.Table {
		include, ok := api.ParseIncludeObject(x.info.IncludeObject)
		rep.IncludeObject = include
		return rep, ok
	}
	return rep, true
}

// parseRead compiles what an exact request selects; ok is false for what upstream
// answers.
func parseRead(info *api.RequestInfo, res *cache.Resource) (q readQuery, ok bool) {
	q.options = info.Options
	if q.options.ShardSelector != "" || !validVersion(q.options.ResourceVersion) {
		return q, false
	}
	if info.Verb == "get" {
		return q, true
	}
	var err error
	q.filter, err = object.NewFilter(res.Schema, info.Namespace, "", q.options.LabelSelector, q.options.FieldSelector)
	return q, err == nil
}

func validVersion(rv string) bool {
	_, err := api.ParseResourceVersion(rv)
	return err == nil
}

// encodingOf is the encoding of the collection that serves rep.
func encodingOf(res *cache.Resource, rep api.Representation) api.Encoding {
	if res.Custom {
		return api.JSON
	}
	return rep.Encoding
}

// collection returns the collection that serves rep; nil means forward, an
// answer means refuse.
func (g *Gateway) collection(ctx context.Context, x *exchange, res *cache.Resource, rep api.Representation) (*cache.Collection, *api.Response) {
	c, err := g.Manager.Collection(ctx, res, encodingOf(res, rep))
	if err == nil {
		if !g.isCurrent(res) {
			return nil, nil
		}
		return c, nil
	}
	if apierrors.IsTooManyRequests(err) || ctx.Err() != nil {
		return nil, x.fail(err)
	}
	g.Logger.Debug("collection cannot be used, forwarding", "resource", res.String(), "error", err)
	return nil, nil
}

// isCurrent reports whether res is still what the request found when it came: another
// server may serve it now, or another definition be true of it.
func (g *Gateway) isCurrent(res *cache.Resource) bool {
	now, ok := g.Resources.Lookup(res.GroupVersionResource)
	return ok && now == res
}

// cached answers a get or list from the cache.
func (g *Gateway) cached(ctx context.Context, x *exchange, res *cache.Resource, q readQuery) *api.Response {
	c, refusal := g.collection(ctx, x, res, q.rep)
	if c == nil {
		return refusal
	}
	req := readRequest(x, q)
	if q.mostRecent() {
		if !g.holds(ctx, x, c) {
			return g.strict(ctx, x, res, q)
		}
		req.MostRecent = true
	}
	read := g.Reader.List
	if x.info.Verb == "get" {
		read = g.Reader.Get
	}
	resp, err := read(ctx, c, req)
	switch {
	case errors.Is(err, cache.ErrForward) && q.options.Continue != "":
		return g.revalidate(ctx, x, res, q)
	case errors.Is(err, cache.ErrForward):
		return nil
	case err != nil:
		resp = x.fail(err)
	}
	x.source = fromCache
	warn(resp, c)
	markStale(resp, c)
	return resp
}

func readRequest(x *exchange, q readQuery) *cache.ReadRequest {
	return &cache.ReadRequest{
		Namespace:   x.info.Namespace,
		Name:        x.info.Name,
		Options:     q.options,
		Filter:      q.filter,
		Rep:         q.rep,
		Compression: api.NegotiateCompression(x.request.Header.Get("Accept-Encoding")),
		IfNoneMatch: x.request.Header.Get("If-None-Match"),
	}
}

// strict answers a most-recent read that the upstream has to be asked for.
func (g *Gateway) strict(ctx context.Context, x *exchange, res *cache.Resource, q readQuery) *api.Response {
	if resp := g.revalidate(ctx, x, res, q); resp != nil {
		return resp
	}
	resp := g.collapse(ctx, x)
	if resp != nil && !g.isCurrent(res) {
		// Another server may have given the answer, to the gateway itself.
		finish(resp, 0, nil)
		return nil
	}
	return resp
}

// revalidate answers a list from the cache once the upstream has told which objects
// are current; nil when that cannot be.
func (g *Gateway) revalidate(ctx context.Context, x *exchange, res *cache.Resource, q readQuery) *api.Response {
	if x.info.Verb != "list" || !revalidates(res, q.rep) {
		return nil
	}
	c := g.Manager.Wanted(res, encodingOf(res, q.rep))
	if c == nil {
		return nil
	}
	resp, err := g.Reader.Revalidate(ctx, c, readRequest(x, q))
	if err != nil {
		if ctx.Err() != nil {
			return x.fail(err)
		}
		g.Logger.Debug("list cannot be revalidated", "resource", res.String(), "error", err)
		return nil
	}
	x.source = fromRevalidated
	warn(resp, c)
	return resp
}

// revalidates reports whether names and versions are what the upstream can be asked
// for instead of rep. Metadata is what they are taken from, and rows alone cost it
// even less. What an aggregated API server means by a version is its own affair.
func revalidates(res *cache.Resource, rep api.Representation) bool {
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
	if _, err := c.FreshAtOnce(ctx); !errors.Is(err, cache.ErrUnsupported) {
		return err == nil
	}
	if g.mode(x, c.Resource()) == ModeStrict {
		return false
	}
	state := c.State()
	if state.Phase != cache.Synced {
		return false
	}
	if age := max(time.Since(state.LastContact), state.Delay); g.Consistency.MaxStaleness > 0 && age > g.Consistency.MaxStaleness {
		return false
	}
	return g.session.hold(ctx, c) == nil
}

// lateAfter is from which delay on answers from the cache say how old they are.
const lateAfter = 2 * time.Second

// markStale says how old an answer of a stale or late collection is (RFC 9111).
func markStale(resp *api.Response, c *cache.Collection) {
	state := c.State()
	age := state.Delay
	if state.Phase == cache.Stale {
		age = max(age, time.Since(state.Since), 0)
	} else if age < lateAfter {
		return
	}
	resp.Header.Add("Age", strconv.FormatInt(int64(age/time.Second), 10))
	resp.Header.Add("Warning", `110 kubeweir "Response is Stale"`)
}

// collapse answers a most-recent read together with others that want the same.
func (g *Gateway) collapse(ctx context.Context, x *exchange) *api.Response {
	resp, err := g.collapser.do(ctx, x.request, x.pretty)
	if err != nil {
		return nil // too large to share
	}
	if resp.Status == 401 || resp.Status == 403 || resp.Status == 429 {
		// The gateway itself may not: as the client then.
		finish(resp, 0, nil)
		return nil
	}
	x.source = fromCollapsed
	return resp
}

// watch answers a watch from the multiplexer.
func (g *Gateway) watch(ctx context.Context, x *exchange, res *cache.Resource, q readQuery) *api.Response {
	c, refusal := g.collection(ctx, x, res, q.rep)
	if c == nil {
		return refusal
	}
	req := &cache.WatchRequest{Filter: q.filter, Options: q.options, Rep: q.rep}
	if q.options.ResourceVersion == "" {
		version, err := g.current(ctx, x, c)
		if err != nil {
			return nil
		}
		req.MostRecent = version
	}
	// A revocation must be able to end the watch from its first moment on, and
	// the watch to withdraw from being followed whenever it ends.
	var registration *identity.Registration
	registered := make(chan struct{})
	req.Ended = func(cache.EndReason) {
		<-registered
		registration.Close()
	}
	req.ForwardExpired = g.resumed.acquire(x.user(), 1)
	resumed := false
	defer func() {
		if req.ForwardExpired && !resumed {
			g.resumed.release(x.user(), 1)
		}
	}()
	resp, open, err := g.Watches.Watch(ctx, c, req)
	if req.ForwardExpired && errors.Is(err, watchmux.ErrExpired) {
		resp := g.resume(ctx, x)
		resumed = true
		return resp
	}
	if err != nil {
		if ctx.Err() != nil {
			return x.fail(err)
		}
		return nil
	}
	registration = g.Revocation.Register(x.subject, identity.AttributesOf(x.info), x.decision, func(identity.EndReason) {
		open.End(cache.EndRevoked)
	})
	close(registered)
	x.source = fromCache
	warn(resp, c)
	return resp
}

// resume lets the upstream continue a watch from a version before the cache's
// history. A collection that has just begun has none, and whoever listed before
// that must not be told to list again.
func (g *Gateway) resume(ctx context.Context, x *exchange) *api.Response {
	resp := g.forward(ctx, x)
	done := resp.Done
	resp.Done = func(n int64, err error) {
		g.resumed.release(x.user(), 1)
		if done != nil {
			done(n, err)
		}
	}
	return resp
}

// current returns a version that the collection must hold for a watch from the
// most recent state.
func (g *Gateway) current(ctx context.Context, x *exchange, c *cache.Collection) (uint64, error) {
	if g.holds(ctx, x, c) {
		return c.RV(), nil
	}
	return c.Fresh(ctx)
}
