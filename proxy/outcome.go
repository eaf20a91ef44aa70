package proxy

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
	"github.com/kubeweir/kubeweir/reason"
)

// outcome is what becomes of a read: an answer (a refusal included), or the reason for
// which it is forwarded.
type outcome struct {
	answer *api.Response
	why    reason.Forward
	err    error // of the cache, nil where that was not asked
}

func answeredWith(resp *api.Response) outcome { return outcome{answer: resp} }
func forwardedFor(why reason.Forward) outcome { return outcome{why: why} }
func forwardedBy(err error) outcome           { return outcome{why: read.ForwardReason(err), err: err} }

// isRead reports whether a request is a get, list or watch of a resource.
func isRead(x *exchange) bool {
	if !x.info.IsResourceRequest || !reads(x.request.Method) {
		return false
	}
	switch x.info.Verb {
	case "get", "list", "watch":
		return true
	}
	return false
}

// qualify reads a request and says why it cannot be answered here, as far as the
// request and its resource tell. Whatever cannot be answered exactly as upstream would,
// errors in the parameters included, is upstream's to answer. The rest of the way reads
// no more of path and query than what is in the query and the exchange's info.
func (g *Gateway) qualify(x *exchange) (q readQuery, why reason.Forward) {
	if why = ambiguity(x); why != reason.NotForwarded {
		return q, why
	}
	info := x.info
	q.res, why = g.Resources.find(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if why != reason.NotForwarded {
		return q, why
	}
	q.options = info.Options
	var representable, selectable bool
	q.rep, representable = negotiate(x, q.res)
	q.filter, selectable = selection(info, q.res)
	switch {
	case !inScope(info, q.res):
		return q, reason.Scope
	case x.subject.UpstreamDecides:
		return q, reason.Impersonated
	case !representable:
		return q, reason.Representation
	case !validVersion(q.options.ResourceVersion):
		return q, reason.InvalidVersion
	case !selectable:
		return q, reason.InvalidSelector
	}
	return q, reason.NotForwarded
}

// ambiguity says why a read is not one that the cache knows how to read: an exact one
// (see api.RequestInfo.Exact) of an object or a collection, over plain HTTP, or a watch over
// a WebSocket.
func ambiguity(x *exchange) reason.Forward {
	switch {
	case x.info.Exact && (x.request.Upgrade == "" || x.info.Verb == "watch" && websocket.Accepts(x.request)):
		return reason.NotForwarded
	case x.request.Method == "HEAD":
		return reason.Head
	case x.info.Subresource != "":
		return reason.Subresource
	case x.request.Upgrade != "":
		return reason.Upgraded
	}
	return reason.Inexact
}

// inScope reports whether the namespace in the path, or its absence, goes with the
// resource. The paths of a Namespace itself are the only ones of a cluster-scoped
// resource with a namespace in them.
func inScope(info *api.RequestInfo, res *source.Resource) bool {
	switch {
	case info.Resource == "namespaces" && info.APIGroup != "":
		return false // objects of such a custom resource have the paths of namespaces
	case info.Resource == "namespaces" && (info.Verb == "get" || info.Namespace != ""):
		return info.Namespace == info.Name
	case res.Namespaced:
		// Custom resources have the path of a watch of one name in all namespaces.
		return info.Namespace != "" || !info.NamedByPath || res.Custom && info.Verb == "watch"
	}
	return info.Namespace == ""
}

// selection compiles what a list or watch selects; ok is false where the resource does
// not have the selector.
func selection(info *api.RequestInfo, res *source.Resource) (filter *object.Filter, ok bool) {
	if info.Verb == "get" {
		return nil, true
	}
	namespace := info.Namespace
	if !res.Namespaced {
		namespace = "" // that of a Namespace itself is its name
	}
	filter, err := object.NewFilter(res.Schema, namespace, "", info.Options.LabelSelector, info.Options.FieldSelector)
	return filter, err == nil
}

// isNewer reports whether a read selects by a field that the upstream's release lacks; minor tells which that is, 0 for what
// is not known.
func (q *readQuery) isNewer(minor func() int) bool {
	if q.options.FieldSelector == nil || q.filter == nil {
		return false
	}
	since := q.res.Schema.Since(q.options.FieldSelector)
	if since == 0 {
		return false
	}
	is := minor()
	return is != 0 && is < since
}

func validVersion(rv string) bool {
	_, err := api.ParseResourceVersion(rv)
	return err == nil
}

// forwardedHeader tells, while the log's level is debug, why a read was forwarded.
const forwardedHeader = "Kubeweir-Forwarded"

// forwardRead forwards a read and tells why, unless the upstream has said lately that it does
// not serve the resource.
func (g *Gateway) forwardRead(ctx context.Context, x *exchange, why reason.Forward) *api.Response {
	var resp *api.Response
	if why == reason.UnknownResource {
		resp = g.discovery(ctx, x)
	}
	if resp != nil && x.source != fromUpstream {
		return resp
	}
	g.metrics.forwarded[why].Inc()
	if resp == nil {
		resp = g.forward(ctx, x)
	}
	if g.Logger.Enabled(ctx, slog.LevelDebug) {
		g.Logger.Debug("read forwarded", "reason", why.String(), "verb", x.info.Verb, "group", x.info.APIGroup, "resource", x.info.Resource)
		if resp.Upgrade == nil {
			resp.Header.Set(forwardedHeader, why.String())
		}
	}
	return resp
}
