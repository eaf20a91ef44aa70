package visible

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A resource is listed across all namespaces.
type resource struct {
	prefix, name string
	custom       bool
}

var (
	namespacesThemselves = resource{prefix: "/api/v1", name: "namespaces"}
	resources            = []resource{
		{prefix: "/api/v1", name: "configmaps"}, {prefix: "/api/v1", name: "secrets"}, {prefix: "/api/v1", name: "pods"},
		{prefix: "/apis/example.com/v1", name: "widgets", custom: true}, namespacesThemselves,
	}
)

func (r resource) all() string { return r.prefix + "/" + r.name }
func (r resource) in(namespace string) string {
	return r.prefix + "/namespaces/" + namespace + "/" + r.name
}

// A form is a representation of a response.
type form struct {
	accept          string
	builtin, noList bool // for built-in resources, for watches only
	noWatch         bool
}

var forms = []form{
	{accept: "application/json"},
	{accept: "application/vnd.kubernetes.protobuf", builtin: true},
	{accept: "application/cbor"},
	{accept: "application/yaml", noWatch: true},
	{accept: "application/json;as=Table;v=v1;g=meta.k8s.io"},
	{accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", noWatch: true},
	{accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", noWatch: true},
	{accept: "application/cbor;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", noWatch: true},
	{accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", noList: true},
	{accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", noList: true},
}

// A request is a user's request across all namespaces.
type request struct {
	user         user
	impersonated bool
	resource     resource
	watch        bool
	socket       bool // a watch over a WebSocket
	form         form
	coding       string
	selectors    url.Values // applied by the upstream, too
	options      url.Values // the other parameters
	without      string     // a namespace that the query excludes, or ""
	counts       bool
}

func (r *request) String() string {
	return fmt.Sprintf("%s: GET %s (%s %s, impersonated %t, socket %t)", r.user.name, r.path(), r.form.accept, r.coding, r.impersonated, r.socket)
}

func (r *request) path() string {
	values := url.Values{}
	for _, from := range []url.Values{r.selectors, r.options} {
		for k, v := range from {
			values[k] = v
		}
	}
	if r.watch {
		values.Set("watch", "1")
	}
	if len(values) == 0 {
		return r.resource.all()
	}
	return r.resource.all() + "?" + values.Encode()
}

func (r *request) header() http.Header {
	h := r.user.header(r.impersonated)
	h.Set("Accept", r.form.accept)
	if r.coding != "" {
		h.Set("Accept-Encoding", r.coding)
	}
	return h
}

// randomRequest returns a request that the cache can serve.
func randomRequest(random *rand.Rand) *request {
	r := &request{
		user: pick(random, users), impersonated: random.IntN(4) == 0, resource: pick(random, resources),
		watch: random.IntN(3) == 0, selectors: url.Values{}, options: url.Values{},
		coding: pick(random, []string{"", "", "gzip", "zstd"}),
	}
	for r.form = pick(random, forms); !r.hasForm(); {
		r.form = pick(random, forms)
	}
	r.randomSelectors(random)
	if r.watch {
		r.options.Set("sendInitialEvents", "true")
		r.options.Set("resourceVersionMatch", "NotOlderThan")
		r.options.Set("allowWatchBookmarks", "true")
		r.socket = r.form.accept == "application/json" && random.IntN(2) == 0
		return r
	}
	switch random.IntN(4) {
	case 0:
		r.options.Set("resourceVersion", "0")
	case 1:
		r.options.Set("resourceVersion", "1")
		r.options.Set("resourceVersionMatch", "NotOlderThan")
	}
	if random.IntN(2) == 0 {
		r.options.Set("limit", fmt.Sprint(1+random.IntN(5)))
	}
	if random.IntN(4) == 0 && (r.form.accept == "application/json" || strings.HasPrefix(r.form.accept, "application/json;as=Table")) {
		r.randomQuery(random)
	}
	if random.IntN(8) == 0 {
		r.options.Set("shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')")
	}
	return r
}

// hasForm reports whether the form is valid for the request. Redacted views have no protobuf.
func (r *request) hasForm() bool {
	switch f := r.form; {
	case f.builtin && r.resource.custom, f.noWatch && r.watch, f.noList && !r.watch:
		return false
	case r.user.isScreen():
		return !strings.Contains(f.accept, "protobuf")
	}
	return true
}

// isScreen reports whether the user has a redacted view.
func (u user) isScreen() bool { return slices.Contains(u.groups, "screens") }

func (r *request) randomSelectors(random *rand.Rand) {
	if random.IntN(3) == 0 {
		r.selectors.Set("labelSelector", pick(random, []string{"half=left", "half in (left,right)", "half!=left", "!half"}))
	}
	switch {
	case random.IntN(3) > 0 || r.resource == namespacesThemselves && r.watch: // a watch of one Namespace has its name in the path
	case r.resource == namespacesThemselves:
		r.selectors.Set("fieldSelector", "metadata.name="+pick(random, namespaces))
	default:
		r.selectors.Set("fieldSelector", pick(random, []string{
			"metadata.name=" + pick(random, objectNames), "metadata.namespace=" + pick(random, namespaces), "metadata.namespace!=" + pick(random, namespaces),
			"metadata.name=" + pick(random, objectNames) + ",metadata.namespace=" + pick(random, namespaces),
		}))
	}
}

func (r *request) randomQuery(random *rand.Rand) {
	if random.IntN(2) == 0 {
		r.options.Set("sortBy", "-.metadata.name,.metadata.namespace")
	}
	if random.IntN(2) == 0 && r.resource != namespacesThemselves {
		r.without = pick(random, namespaces)
		r.options.Set("where", ".metadata.namespace!="+r.without)
	}
	if r.form.accept == "application/json" && random.IntN(2) == 0 {
		r.counts = true
		r.options.Set("countBy", ".metadata.labels.half")
	}
}

// An expectation is the expected response: the keys of the visible objects, and the visible
// namespaces.
type expectation struct {
	rejected bool // the user may see nothing
	whole    bool // the user may see everything
	in       []string
	absent   int // how many of in do not exist: Namespaces that a role names are counted
	keys     map[string]bool
}

// expect queries kube-apiserver, as the user, for one namespace after the other.
func (o *oracle) expect(ctx context.Context, r *request) (e expectation, err error) {
	query := ""
	if len(r.selectors) > 0 {
		query = "?" + r.selectors.Encode()
	}
	all, err := o.keys(ctx, admin(), r.resource.all()+query)
	if err != nil {
		return e, err
	}
	e.keys = make(map[string]bool)
	if e.whole, err = o.may(ctx, r, r.resource.all(), query); err != nil {
		return e, err
	}
	among := o.namespaces
	if r.resource == namespacesThemselves { // a role may name Namespaces that do not exist
		among = slices.Concat(among, objectNames)
	}
	for _, namespace := range among {
		may := e.whole
		if !may {
			if may, err = o.mayIn(ctx, r, namespace, query); err != nil {
				return e, err
			}
		}
		if may {
			e.in = append(e.in, namespace)
			if slices.Contains(objectNames, namespace) {
				e.absent++
			}
		}
	}
	e.rejected = !e.whole && len(e.in) == 0
	visible := make(map[string]bool)
	for _, namespace := range e.in {
		visible[namespace] = true
	}
	for _, key := range all {
		namespace, _, namespaced := strings.Cut(key, "/")
		if (e.whole || visible[namespace]) && !(namespaced && namespace == r.without) {
			e.keys[key] = true
		}
	}
	return e, nil
}

// may reports whether the user may list or watch a path.
func (o *oracle) may(ctx context.Context, r *request, path, query string) (bool, error) {
	if r.watch {
		path += strings.Replace("?watch=1&"+query, "&?", "&", 1)
	} else {
		path += query
	}
	return o.allows(ctx, r.user, path)
}

// mayIn reports whether the user may see a namespace: whether it may list or watch the resource
// there. To see a Namespace object, the user must be allowed to get it and, for a watch, to watch
// it.
func (o *oracle) mayIn(ctx context.Context, r *request, namespace, query string) (bool, error) {
	if r.resource != namespacesThemselves {
		return o.may(ctx, r, r.resource.in(namespace), query)
	}
	if only, ok := strings.CutPrefix(r.selectors.Get("fieldSelector"), "metadata.name="); ok && only != namespace {
		return false, nil
	}
	may, err := o.allows(ctx, r.user, "/api/v1/namespaces/"+namespace)
	if err == nil && may && r.watch {
		return o.allows(ctx, r.user, "/api/v1/watch/namespaces/"+namespace+query)
	}
	return may, err
}
