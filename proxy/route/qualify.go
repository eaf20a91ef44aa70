package route

import (
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// Namespaces is the resource of the Namespaces themselves.
var Namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Resources finds the resources that the cache may serve, or the reason why it may not.
type Resources interface {
	Find(gvr schema.GroupVersionResource) (*source.Resource, reason.Forward)
}

// Qualify reads a get, list or watch, and finds out why the cache cannot serve it as far as the
// request and its resource show. Reads that the cache cannot serve exactly as the upstream would,
// those with errors in their parameters included, are forwarded. Later steps read no more of path and
// query than what is in Query and Info.
func (f *Facts) Qualify(resources Resources) { f.Unqualified = f.qualify(resources) }

// ParseParameters parses the shard selector and the query of a read. It does so for users who may
// make the read only, because shards remembers what it parsed.
func (f *Facts) ParseParameters(shards *shard.Parser) {
	f.Parsed = true
	if q := &f.Query; q.Options.ShardSelector != "" {
		q.Filter.Shard, f.ParameterErr = shards.Parse(q.Options.ShardSelector)
	}
	if f.Info.Query != nil && f.ParameterErr == nil {
		f.Query.Query, f.ParameterErr = query.Parse(f.Info.Query)
	}
}

func (f *Facts) qualify(resources Resources) (why reason.Forward) {
	info, q := f.Info, &f.Query
	if why = f.ambiguity(); why != reason.NotForwarded {
		if info.Query == nil {
			return why
		}
		// A query of a resource that is never cached is forwarded with its parameters.
		if _, uncached := resources.Find(f.resource()); uncached == reason.Aggregated || uncached == reason.Unwatchable {
			return uncached
		}
		return why
	}
	if q.Resource, why = resources.Find(f.resource()); why != reason.NotForwarded {
		return why
	}
	q.Options = info.Options
	var representable, selectable bool
	q.Rep, representable = f.negotiate()
	q.Filter, selectable = selection(info, q.Resource)
	switch {
	case !inScope(info, q.Resource):
		return reason.Scope
	case f.Subject.UpstreamDecides:
		return reason.Impersonated
	case !representable:
		return reason.Representation
	case !validVersion(q.Options.ResourceVersion):
		return reason.InvalidVersion
	case !selectable:
		return reason.InvalidSelector
	}
	return reason.NotForwarded
}

func (f *Facts) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: f.Info.APIGroup, Version: f.Info.APIVersion, Resource: f.Info.Resource}
}

// ambiguity returns why a read is not one that the cache can read: an exact one (see
// api.RequestInfo.Exact) of an object or a collection, over plain HTTP, or a watch over a WebSocket.
func (f *Facts) ambiguity() reason.Forward {
	r, info := f.Request, f.Info
	switch {
	case info.Exact && (r.Upgrade == "" || info.Verb == "watch" && websocket.Accepts(r)):
		return reason.NotForwarded
	case r.Method == "HEAD":
		return reason.Head
	case info.Subresource != "":
		return reason.Subresource
	case r.Upgrade != "":
		return reason.Upgraded
	}
	return reason.Inexact
}

// negotiate returns the representation of the response. ok is false if the cache does not have it.
func (f *Facts) negotiate() (rep api.Representation, ok bool) {
	res, isWatch := f.Query.Resource, f.Info.Verb == "watch"
	accept := f.Request.Header.Get("Accept")
	if strings.Contains(accept, "application/*") {
		// go-restful, which looks before the handlers of built-in resources do, knows exact types and
		// */* only.
		return rep, false
	}
	rep, verdict := api.Negotiate(accept, api.Capabilities{
		List:       f.Info.Verb == "list",
		Protobuf:   !res.Custom,
		NoProtobuf: f.Redacted,
		Table:      res.Printer != nil && !res.Printer.Traits().NoTables,
	})
	if verdict != api.Serve || rep.YAML && isWatch {
		return rep, false
	}
	rep.Redacted = f.Redacted
	rep.DropManagedFields = rep.DropManagedFields || f.Settings.DropManagedFields == policy.Yes
	rep.Pretty = !isWatch && rep.Encoding == api.JSON && !rep.YAML && (rep.Pretty || f.Pretty)
	if rep.Transform == api.Table {
		rep.IncludeObject, ok = api.ParseIncludeObject(f.Info.IncludeObject)
		return rep, ok
	}
	return rep, true
}

// inScope reports whether the namespace in the path, or its absence, goes with the resource. The
// paths of a Namespace itself are the only ones of a cluster-scoped resource with a namespace in
// them.
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

// selection compiles what a list or watch selects. ok is false if the resource does not have the
// selector.
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

func validVersion(rv string) bool {
	_, err := api.ParseResourceVersion(rv)
	return err == nil
}

// fieldSince returns the release since which the resource has the fields that the read selects by, 0
// if it always had.
func (f *Facts) fieldSince() int {
	if f.Query.Options.FieldSelector == nil || f.Query.Filter == nil {
		return 0
	}
	return f.Query.Resource.Schema.Since(f.Query.Options.FieldSelector)
}

// Mode returns the consistency of a most-recent read. It is strict for aggregated API servers, because
// their responses to writes do not show how new the cache must be.
func (f *Facts) Mode() policy.Mode {
	if f.Query.Resource != nil && f.Query.Resource.Aggregated {
		return policy.ModeStrict
	}
	return f.ClientMode()
}

// ClientMode returns the consistency in the client's settings, or ModeStrict with Cache-Control:
// no-cache (RFC 9111, section 5.2.1.4).
func (f *Facts) ClientMode() policy.Mode {
	if f.Settings.Mode != policy.ModeStrict && httpguts.HeaderValuesContainsToken(f.Request.Header.Values("Cache-Control"), "no-cache") {
		return policy.ModeStrict
	}
	return f.Settings.Mode
}
