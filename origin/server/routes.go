package server

import (
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// maxRoutes bounds what a routes remembers: clients choose the headers.
	maxRoutes = 4096
	// maxRouteHeader is up to what length in bytes they are remembered.
	maxRouteHeader = 256
)

// routes is a restful.RouteSelector that remembers where a write led to. CurlyRouter
// compares a path with every route of its group, a twentieth of what a small write
// costs; but for a path in its plain form only what is in a routeKey decides.
//
// The request was authorized before, by what RequestInfo says of it. Other forms of a
// path, above all one with "watch" before the resource, which is a watch whatever the
// method, must not get the route of the plain one: they are left to CurlyRouter.
//
// It is safe for concurrent use.
type routes struct {
	router restful.CurlyRouter
	mu     struct {
		sync.RWMutex
		known map[routeKey]route
	}
}

// routeKey is what the route of a request for a resource depends on.
type routeKey struct {
	method, verb           string
	prefix, group, version string
	resource, subresource  string
	namespaced             bool
	parts                  int // of the path from the resource on
	services               int // of the container
	contentType, accept    string
}

type route struct {
	service *restful.WebService
	route   *restful.Route
}

// SelectRoute implements restful.RouteSelector.
func (r *routes) SelectRoute(services []*restful.WebService, req *http.Request) (*restful.WebService, *restful.Route, error) {
	key, ok := routeKeyOf(services, req)
	if !ok {
		return r.router.SelectRoute(services, req)
	}
	r.mu.RLock()
	known, ok := r.mu.known[key]
	r.mu.RUnlock()
	if ok {
		return known.service, known.route, nil
	}
	service, selected, err := r.router.SelectRoute(services, req)
	if err == nil {
		r.remember(key, route{service, selected})
	}
	return service, selected, err
}

func (r *routes) remember(key routeKey, found route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.known) >= maxRoutes {
		return
	}
	if r.mu.known == nil {
		r.mu.known = make(map[routeKey]route)
	}
	// The strings may be part of a request.
	for _, s := range []*string{&key.method, &key.verb, &key.prefix, &key.group, &key.version, &key.resource, &key.subresource, &key.contentType, &key.accept} {
		*s = strings.Clone(*s)
	}
	r.mu.known[key] = found
}

// routeKeyOf is the key of a write; ok is false for everything else.
func routeKeyOf(services []*restful.WebService, req *http.Request) (key routeKey, ok bool) {
	info, ok := apirequest.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || !plainPath(req.URL.Path, info) {
		return key, false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return key, false
	}
	key = routeKey{
		method: req.Method, verb: info.Verb, prefix: info.APIPrefix, group: info.APIGroup, version: info.APIVersion,
		resource: info.Resource, subresource: info.Subresource, namespaced: info.Namespace != "", parts: len(info.Parts),
		services: len(services), contentType: req.Header.Get("Content-Type"), accept: req.Header.Get("Accept"),
	}
	return key, len(key.contentType) <= maxRouteHeader && len(key.accept) <= maxRouteHeader
}

// plainPath reports whether path has nothing but what info says of it, each once:
// /PREFIX[/GROUP]/VERSION[/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]].
func plainPath(path string, info *apirequest.RequestInfo) bool {
	segments := 2 + len(info.Parts)
	if info.APIGroup != "" {
		segments++
	}
	if info.Namespace != "" && info.Resource != "namespaces" {
		segments += 2
	}
	return len(info.Parts) <= 3 && strings.Count(path, "/") == segments &&
		!strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}
