package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// selected says where a request leads to.
func selected(service *restful.WebService, route *restful.Route, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(service.RootPath(), " ", route.Method, " ", route.Path, " ", route.Operation)
}

// TestRoutes: every route of the built-in resources is found as go-restful finds it, at first and again, whatever the
// objects are called; so is every refusal.
//
// What was decided before the route is selected, whether the request is permitted, rests on its verb, so a path must
// never get the route of another: "watch" before a resource makes any method a watch.
func TestRoutes(t *testing.T) {
	container := build(t).aggregator.Generic.NextDelegate().(*genericapiserver.GenericAPIServer).Handler.GoRestfulContainer
	services := container.RegisteredWebServices()
	resolver := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}
	names := []string{"x", "status", "namespaces", "pods", "watch", "{name}"}
	types := []string{"", "application/json", "application/vnd.kubernetes.protobuf", "application/merge-patch+json", "application/apply-patch+yaml", "text/plain"}
	accepts := []string{"", "application/json", "application/vnd.kubernetes.protobuf, application/json", "text/html"}
	r := &routes{}
	compared := 0
	for _, service := range services {
		for _, known := range service.Routes() {
			if known.Method == http.MethodGet {
				continue
			}
			for _, name := range slices.Repeat(names, 8) {
				path := strings.NewReplacer("{namespace}", names[rand.IntN(len(names))], "{name}", name, "{path:*}", "a/b", "{path}", "a").Replace(known.Path)
				version := len(service.RootPath())
				path = []string{
					path, path, path + "/", path[:version] + "/watch" + path[version:], path[:version] + "/proxy" + path[version:],
					strings.Replace(path, "/"+name, "//", 1), path + "//",
				}[rand.IntN(7)]
				req := httptest.NewRequest(known.Method, "/", nil)
				req.URL.Path = path
				info, err := resolver.NewRequestInfo(req)
				if err != nil {
					t.Fatal(err)
				}
				req = req.WithContext(apirequest.WithRequestInfo(req.Context(), info))
				req.Header.Set("Content-Type", types[rand.IntN(len(types))])
				req.Header.Set("Accept", accepts[rand.IntN(len(accepts))])
				want := selected(restful.CurlyRouter{}.SelectRoute(services, req))
				for range 2 {
					if got := selected(r.SelectRoute(services, req)); got != want {
						t.Errorf("%s %s %v: %s, want %s", req.Method, path, req.Header, got, want)
					}
				}
				compared++
			}
		}
	}
	if compared < 15000 || len(r.mu.known) < 1000 {
		t.Errorf("%d requests, %d routes", compared, len(r.mu.known))
	}
}

// TestRoutesAreBounded: what clients choose does not fill the memory.
func TestRoutesAreBounded(t *testing.T) {
	service := new(restful.WebService).Path("/api/v1").Consumes("*/*").Produces("*/*")
	service.Route(service.POST("/namespaces/{namespace}/pods").To(func(*restful.Request, *restful.Response) {}))
	services := []*restful.WebService{service}
	r := &routes{}
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: "create", Path: "/api/v1/namespaces/a/pods", APIPrefix: "api", APIVersion: "v1", Namespace: "a", Resource: "pods", Parts: []string{"pods"}}
	for i := range maxRoutes + 10 {
		for _, accept := range []string{fmt.Sprint("application/", i), strings.Repeat("x", maxRouteHeader) + fmt.Sprint(i)} {
			req := httptest.NewRequest("POST", "/api/v1/namespaces/a/pods", nil)
			req.Header.Set("Accept", accept)
			req = req.WithContext(apirequest.WithRequestInfo(req.Context(), info))
			if _, route, err := r.SelectRoute(services, req); err != nil || route == nil {
				t.Fatal(err)
			}
		}
	}
	if len(r.mu.known) != maxRoutes {
		t.Errorf("%d routes are remembered", len(r.mu.known))
	}
}
