package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"time"

	"github.com/emicklei/go-restful/v3"
	"golang.org/x/net/http/httpguts"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

func serverResource(gvr schema.GroupVersionResource, namespaced bool) discovery.ServerResource {
	return discovery.ServerResource{GroupVersionResource: gvr, Kind: "Kind", Namespaced: namespaced, Verbs: []string{"get", "list", "watch"}}
}

// oracle says what kube-apiserver makes of a request, by its own libraries.
type oracle struct {
	infos  apirequest.RequestInfoFactory
	routes *restful.Container
}

// A foundRoute is what kube-apiserver's router finds for a request.
type foundRoute struct {
	found           bool
	gvr             schema.GroupVersionResource
	one             bool // the route of one object
	namespace, name string
}

// newOracle installs the routes of the resources as k8s.io/apiserver/pkg/endpoints does (registerResourceHandlers).
func newOracle(resources fakeDiscovery) *oracle {
	o := &oracle{
		infos:  apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		routes: restful.NewContainer(),
	}
	o.routes.Router(restful.CurlyRouter{})
	services := map[string]*restful.WebService{}
	for gvr, res := range resources {
		root := "/apis/" + gvr.Group + "/" + gvr.Version
		if gvr.Group == "" {
			root = "/api/" + gvr.Version
		}
		ws := services[root]
		if ws == nil {
			ws = new(restful.WebService).Path(root).Produces("*/*") // the representation is compared elsewhere
			services[root] = ws
		}
		collections := []string{gvr.Resource}
		objects := gvr.Resource + "/{name}"
		if res.Namespaced {
			collections = append(collections, "namespaces/{namespace}/"+gvr.Resource)
			objects = collections[1] + "/{name}"
		}
		for _, path := range collections {
			ws.Route(ws.GET(path).To(found(gvr, false)))
			ws.Route(ws.GET("watch/" + path).To(found(gvr, false)))
		}
		ws.Route(ws.GET(objects).To(found(gvr, true)))
		ws.Route(ws.GET("watch/" + objects).To(found(gvr, true)))
		ws.Route(ws.GET(objects + "/status").To(ignored))
		ws.Route(ws.GET(objects + "/log").To(ignored))
		ws.Route(ws.GET(objects + "/proxy/{path:*}").To(ignored))
	}
	for _, ws := range services {
		o.routes.Add(ws)
	}
	return o
}

func ignored(*restful.Request, *restful.Response) {}

// found notes the route in the request's context, of which the value is a *foundRoute.
func found(gvr schema.GroupVersionResource, one bool) restful.RouteFunction {
	return func(r *restful.Request, _ *restful.Response) {
		if to, ok := r.Request.Context().Value(routeKey{}).(*foundRoute); ok {
			*to = foundRoute{true, gvr, one, r.PathParameter("namespace"), r.PathParameter("name")}
		}
	}
}

type routeKey struct{}

// route is the director's way to the container (k8s.io/apiserver/pkg/server, handler.go).
func (o *oracle) route(req *http.Request) (found foundRoute) {
	for _, ws := range o.routes.RegisteredWebServices() {
		if rest, ok := strings.CutPrefix(req.URL.Path, ws.RootPath()); ok && (rest == "" || rest[0] == '/') {
			ctx := apirequest.WithValue(req.Context(), routeKey{}, &found)
			o.routes.Dispatch(httptest.NewRecorder(), req.WithContext(ctx))
			break
		}
	}
	return found
}

// compare returns in what the two readings of a request differ, "" if in nothing that matters.
func (o *oracle) compare(r *wireRequest) string {
	mine, req := r.mine, r.theirs
	if req == nil {
		if mine.here {
			return "net/http refuses it"
		}
		return ""
	}
	uri := mine.request.RawPath
	if mine.request.RawQuery != "" {
		uri += "?" + mine.request.RawQuery
	}
	if strings.HasPrefix(req.RequestURI, "/") && uri != strings.TrimSuffix(req.RequestURI, "?") && uri != req.RequestURI {
		return fmt.Sprintf("%q would be forwarded", uri)
	}
	if strings.HasPrefix(req.RequestURI, "/") && mine.request.Path != req.URL.Path {
		return fmt.Sprintf("path %q, want %q", mine.request.Path, req.URL.Path)
	}
	if !mine.here {
		return ""
	}
	for _, check := range []func(*reading, *http.Request) string{o.compareHeader, o.compareAttributes, o.compareRoute, o.compareOptions} {
		if fault := check(mine, req); fault != "" {
			return fault
		}
	}
	return ""
}

// compareHeader looks at the lines that change what a read answers.
func (o *oracle) compareHeader(mine *reading, req *http.Request) string {
	if req.Method != http.MethodGet || mine.request.Method != req.Method {
		return "method"
	}
	if httpguts.HeaderValuesContainsToken(req.Header["Connection"], "upgrade") && req.Header.Get("Upgrade") != "" && req.ProtoMinor == 1 {
		return "an upgrade"
	}
	for _, name := range []string{"Accept", "Accept-Encoding", "User-Agent", "If-None-Match"} {
		got, want := mine.request.Header.Get(name), req.Header.Get(name)
		if httpguts.HeaderValuesContainsToken(req.Header["Connection"], strings.ToLower(name)) {
			want = "" // not for the server
		}
		if got != want {
			return fmt.Sprintf("%s %q, want %q", name, got, want)
		}
	}
	return ""
}

// compareAttributes compares what is authorized.
func (o *oracle) compareAttributes(mine *reading, req *http.Request) string {
	info, err := o.infos.NewRequestInfo(req)
	if err != nil {
		return err.Error()
	}
	theirs, err := filters.GetAuthorizerAttributes(apirequest.WithRequestInfo(req.Context(), info))
	if err != nil {
		return err.Error()
	}
	want := authz.Attributes{
		ResourceRequest: theirs.IsResourceRequest(), Verb: theirs.GetVerb(), APIGroup: theirs.GetAPIGroup(), APIVersion: theirs.GetAPIVersion(),
		Resource: theirs.GetResource(), Subresource: theirs.GetSubresource(), Namespace: theirs.GetNamespace(), Name: theirs.GetName(),
		FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
	}
	if mine.attributes != want {
		return fmt.Sprintf("attributes %+v, want %+v", mine.attributes, want)
	}
	return o.compareSelectors(mine, theirs)
}

// compareSelectors compares the requirements that are authorized with those that select.
func (o *oracle) compareSelectors(mine *reading, theirs authorizer.Attributes) string {
	fieldsWant, fieldErr := theirs.GetFieldSelector()
	labelsWant, labelErr := theirs.GetLabelSelector()
	if fieldErr != nil || labelErr != nil {
		return fmt.Sprintf("selectors: %v, %v", fieldErr, labelErr)
	}
	var fieldsGot fields.Requirements
	var labelsGot labels.Requirements
	if f := mine.read.Filter; f != nil {
		fieldsGot = f.Fields.Requirements()
		labelsGot, _ = f.Labels.Requirements()
		if f.Fields.String() != mine.read.Options.FieldSelector.String() || f.Labels.String() != mine.read.Options.LabelSelector.String() {
			return "the filter is not that of the options"
		}
	}
	if isPathWatch(mine) {
		return "" // authorized without selectors
	}
	if len(fieldsGot)+len(fieldsWant) > 0 && !reflect.DeepEqual(fieldsGot, fieldsWant) ||
		len(labelsGot)+len(labelsWant) > 0 && !reflect.DeepEqual(labelsGot, labels.Requirements(labelsWant)) {
		return fmt.Sprintf("selects by %v %v, authorized are %v %v", fieldsGot, labelsGot, fieldsWant, labelsWant)
	}
	return ""
}

// compareRoute compares what the cache selects with the route that kube-apiserver has for the path.
func (o *oracle) compareRoute(mine *reading, req *http.Request) string {
	got := foundRoute{found: true, one: mine.request.Info().NamedByPath, namespace: mine.read.Namespace, gvr: schema.GroupVersionResource{
		Group: mine.attributes.APIGroup, Version: mine.attributes.APIVersion, Resource: mine.attributes.Resource}}
	if got.one {
		got.name = mine.read.Name
	}
	if got.one && got.gvr.Resource == "namespaces" {
		got.namespace = "" // it stands for the name
	}
	if f := mine.read.Filter; f != nil {
		if f.Namespace != got.namespace {
			return "the filter has another namespace"
		}
		if name, ok := f.Fields.RequiresExactMatch("metadata.name"); got.one && (!ok || name != got.name) {
			return "the filter has another name"
		}
	}
	if want := o.route(req); got != want {
		return fmt.Sprintf("selects %+v, want %+v", got, want)
	}
	return ""
}

// compareOptions compares the parameters.
func (o *oracle) compareOptions(mine *reading, req *http.Request) string {
	query, got := req.URL.Query(), mine.read.Options
	if mine.attributes.Verb != "watch" && query.Get("timeout") != "" {
		if _, err := time.ParseDuration(query.Get("timeout")); err != nil {
			return err.Error()
		}
	}
	if include := mine.request.Info().IncludeObject; include != query.Get("includeObject") {
		return fmt.Sprintf("includeObject %q", include)
	}
	if mine.attributes.Verb == "get" {
		var want metav1.GetOptions
		err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &want)
		if err != nil || len(query["export"]) > 0 || !reflect.DeepEqual(got, api.ListOptions{ResourceVersion: want.ResourceVersion}) {
			return fmt.Sprintf("options %+v, want %+v, %v", got, want, err)
		}
		return ""
	}
	var want metainternalversion.ListOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &want); err != nil {
		return err.Error()
	}
	metainternalversion.SetListOptionsDefaults(&want, true)
	if errs := metainternalversionvalidation.ValidateListOptions(&want, true); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	theirs := optionsOf(&want)
	if isPathWatch(mine) {
		if !theirs.Watch {
			theirs.Watch, theirs.UnmarkedStart = true, isAnyVersion(theirs.ResourceVersion)
		}
		if mine.request.Info().NamedByPath && theirs.FieldSelector.Empty() {
			theirs.FieldSelector = fields.OneTermEqualSelector("metadata.name", mine.attributes.Name)
		}
	}
	same := got.LabelSelector.String() == theirs.LabelSelector.String() && got.LabelSelector.Empty() == theirs.LabelSelector.Empty() &&
		got.FieldSelector.String() == theirs.FieldSelector.String() && got.FieldSelector.Empty() == theirs.FieldSelector.Empty()
	got.LabelSelector, got.FieldSelector = theirs.LabelSelector, theirs.FieldSelector
	if !same || !reflect.DeepEqual(got, theirs) {
		return fmt.Sprintf("options %+v, want %+v", mine.read.Options, theirs)
	}
	return ""
}

// optionsOf are the library's options in the form of ours.
func optionsOf(in *metainternalversion.ListOptions) api.ListOptions {
	out := api.ListOptions{
		LabelSelector: in.LabelSelector, FieldSelector: in.FieldSelector, Watch: in.Watch, AllowWatchBookmarks: in.AllowWatchBookmarks,
		ResourceVersion: in.ResourceVersion, ResourceVersionMatch: in.ResourceVersionMatch, Limit: in.Limit, Continue: in.Continue,
		SendInitialEvents: in.SendInitialEvents != nil && *in.SendInitialEvents, ShardSelector: in.ShardSelector,
	}
	if out.LabelSelector == nil {
		out.LabelSelector = labels.Everything()
	}
	if out.FieldSelector == nil {
		out.FieldSelector = fields.Everything()
	}
	if in.TimeoutSeconds != nil {
		out.TimeoutSeconds = *in.TimeoutSeconds
	}
	out.UnmarkedStart = in.Watch && in.SendInitialEvents == nil && isAnyVersion(in.ResourceVersion)
	return out
}

func isAnyVersion(rv string) bool { return strings.Trim(rv, "0") == "" }

// isPathWatch reports whether the verb of the request is in its path.
func isPathWatch(r *reading) bool {
	path := strings.TrimPrefix(r.request.Path, "/"+r.request.Info().APIPrefix+"/")
	if group := r.attributes.APIGroup; group != "" {
		path = strings.TrimPrefix(path, group+"/")
	}
	return strings.HasPrefix(path, r.attributes.APIVersion+"/watch/")
}
