package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/rejectiontest"
	"github.com/kubeweir/kubeweir/proxy/healthz"
)

// echo responds with the request.
type echo string

func (e echo) Serve(_ context.Context, r *api.Request) *api.Response {
	info := r.Info()
	resp := &api.Response{Status: 200, Body: []byte(fmt.Sprintf("%s %s %s %s %s", e, r.Path, r.RawPath, info.Verb, info.Resource))}
	if strings.Contains(r.RawQuery, "redirect=") {
		_, to, _ := strings.Cut(r.RawQuery, "redirect=")
		resp.Header.Add("Location", to)
	}
	return resp
}

// newTestRouter has a by its hosts and by path, b by path alone and c by its host alone.
func newTestRouter(limit int64) (*Router, map[string]*Target) {
	r := NewRouter(RouterOptions{Prefix: "/clusters/", Health: healthz.New(), InFlight: limit, LongRunning: limit})
	return r, routeTest(r)
}

// routeTest gives a Router the routes of newTestRouter.
func routeTest(r *Router) map[string]*Target {
	a, b, c := r.NewTarget("a", echo("a")), r.NewTarget("b", echo("b")), r.NewTarget("c", echo("c"))
	r.SetRoutes([]Route{
		{Hosts: []string{"a.example", "10.0.0.1", "a.alias"}, PathPrefix: true, Target: a}, {PathPrefix: true, Target: b}, {Hosts: []string{"c.example"}, Target: c},
	})
	return map[string]*Target{"a": a, "b": b, "c": c}
}

// newRequest returns a request as an edge makes it.
func newRequest(method, host, sni, target string) *api.Request {
	path, query, _ := strings.Cut(target, "?")
	decoded, err := url.PathUnescape(path)
	if err != nil {
		panic(err)
	}
	return &api.Request{Method: method, Host: host, ServerName: sni, Path: decoded, RawPath: path, RawQuery: query, Proto: "HTTP/1.1"}
}

func TestRouterFinds(t *testing.T) {
	r, _ := newTestRouter(0)
	for _, test := range []struct {
		host, sni, target string
		code              int
		want              string // body, or a part of it where code is not 200
	}{
		// By path.
		{"gw", "gw", "/clusters/a/api/v1/pods", 200, "a /api/v1/pods /api/v1/pods list pods"},
		{"127.0.0.1:8443", "", "/clusters/b/api/v1/pods?watch=1", 200, "b /api/v1/pods /api/v1/pods watch pods"},
		{"", "", "/clusters/a", 200, "a / / get "},
		{"", "", "/clusters/a/", 200, "a / / get "},
		{"", "", "/clusters/a/api/v1/namespaces/x%2fy/pods", 200, "a /api/v1/namespaces/x/y/pods /api/v1/namespaces/x%2fy/pods get y"},
		{"", "", "/clusters/a/clusters/b/api", 200, "a /clusters/b/api /clusters/b/api get "},
		{"", "", "/clusters/a//api/v1/pods", 200, "a //api/v1/pods //api/v1/pods"},
		{"", "", "/clusters/a/readyz", 200, "a /readyz /readyz get "},
		// By host, which precedes the path.
		{"a.example", "", "/api/v1/pods", 200, "a /api/v1/pods /api/v1/pods list pods"},
		{"A.Example.:8443", "a.example", "/version", 200, "a /version /version get "},
		{"10.0.0.1:443", "", "/api", 200, "a /api /api get "},
		{"c.example", "", "/clusters/b/api/v1/pods", 200, "c /clusters/b/api/v1/pods"},
		{"a.alias", "a.example", "/api", 200, "a /api /api get "},
		{"10.9.9.9", "c.example", "/api", 200, "c /api /api get "},            // tls-server-name
		{"10.9.9.9", "C.Example", "/api", 200, "c /api /api get "},            // a name has no case
		{"10.9.9.9", "c.example", "/clusters/b/api", 200, "b /api /api get "}, // the path says more
		// Two clusters.
		{"a.example", "c.example", "/api", 421, "different clusters"},
		{"a.example", "C.EXAMPLE", "/api", 421, "different clusters"},
		{"c.example:8443", "a.example", "/clusters/b/api", 421, "different clusters"},
		// For the gateway itself.
		{"gw", "gw", "/readyz", 200, "ok"},
		{"gw", "gw", "/livez", 200, "ok"},
		// For none.
		{"gw", "gw", "/api/v1/pods", 404, "names none: use the path /clusters/NAME"},
		{"gw", "gw", "/", 404, "names none"},
		{"gw", "gw", "/clusters", 404, "names none"},
		{"gw", "gw", "/clusters/", 404, "unknown cluster: use the path /clusters/NAME or a host name"},
		{"gw", "gw", "/clusters//a/api", 404, "unknown cluster"},
		{"gw", "gw", "/clusters/c/api", 404, "unknown cluster"}, // by host only
		{"gw", "gw", "/clusters/d/api", 404, "unknown cluster"},
		{"gw", "gw", "/clusters/a.example/api", 404, "unknown cluster"},
		{"gw", "gw", "/clusters/A/api", 404, "unknown cluster"},
		{"gw", "gw", "/clusters/a%2fapi", 404, "unknown cluster"},
		{"gw", "gw", "/clusters/%61/api", 404, "unknown cluster"},
		{"gw", "gw", "/clusters%2fa/api", 404, "names none"},
		{"gw", "gw", "//clusters/a/api", 404, "names none"},
		{"gw", "gw", "/./clusters/a/api", 404, "names none"},
		{"gw", "gw", "/clusters/../clusters/a/api", 404, "unknown cluster"},
		{"gw", "c.example", "/clusters/d/api", 404, "unknown cluster"},
		{"gw", "", "*", 404, "names none"},
		{"gw", "", "", 404, "names none"},
		// Out of the cluster.
		{"gw", "gw", "/clusters/a/../b/api", 400, "leads out"},
		{"gw", "gw", "/clusters/a/%2e%2e/b/api", 400, "leads out"},
		{"gw", "gw", "/clusters/a/..%2fb/api", 400, "leads out"},
		{"gw", "gw", "/clusters/a/api/../../../b", 400, "leads out"},
		{"gw", "gw", "/clusters/a//../b", 400, "leads out"},
		{"gw", "gw", "/clusters/a/./../b", 400, "leads out"},
		{"gw", "gw", "/clusters/a/api/v1/namespaces/x/services/y/proxy/a/../b", 200, "a /api/v1/namespaces/x/services/y/proxy/a/../b"},
		{"gw", "gw", "/clusters/a/%252e%252e/b", 200, "a /%2e%2e/b /%252e%252e/b"},
		{"gw", "gw", "/clusters/a/..a/b", 200, "a /..a/b"},
	} {
		resp := r.Serve(t.Context(), newRequest("GET", test.host, test.sni, test.target))
		if resp.Status != test.code || !strings.Contains(string(resp.Body), test.want) || test.code == 200 && !strings.HasPrefix(string(resp.Body), test.want) {
			t.Errorf("%s (%s) %s: %d %s, want %d %s", test.host, test.sni, test.target, resp.Status, resp.Body, test.code, test.want)
		}
		if test.code >= 400 && !strings.Contains(string(resp.Body), `"kind":"Status"`) {
			t.Errorf("%s: %s is no Status", test.target, resp.Body)
		}
		if strings.Contains(test.target, "/d/") && strings.Contains(string(resp.Body), "a.example") {
			t.Errorf("the response names clusters to an unauthenticated client: %s", resp.Body)
		}
		if resp.Done != nil {
			resp.Done(0, nil)
		}
	}
}

// TestRouterRedirects: redirects within a cluster keep the prefix of the path.
func TestRouterRedirects(t *testing.T) {
	r, _ := newTestRouter(0)
	for _, test := range []struct{ host, target, want string }{
		{"gw", "/clusters/a/x?redirect=/api/v1/", "/clusters/a/api/v1/"},
		{"gw", "/clusters/a/x?redirect=sub/", "sub/"},
		{"gw", "/clusters/a/x?redirect=//elsewhere/api", "//elsewhere/api"},
		{"gw", "/clusters/a/x?redirect=https://elsewhere/api", "https://elsewhere/api"},
		{"a.example", "/x?redirect=/api/v1/", "/api/v1/"},
	} {
		resp := r.Serve(t.Context(), newRequest("GET", test.host, "", test.target))
		if got := resp.Header.Get("Location"); got != test.want {
			t.Errorf("%s%s: %s, want %s", test.host, test.target, got, test.want)
		}
	}
}

// TestRouterShares: the requests in flight of one cluster leave slots to the others.
func TestRouterShares(t *testing.T) {
	r, _ := newTestRouter(8)
	get := func(target string) *api.Response { return r.Serve(t.Context(), newRequest("GET", "gw", "", target)) }
	var open []*api.Response
	for range 20 {
		if resp := get("/clusters/a/slow"); resp.Status == 200 {
			open = append(open, resp)
		}
	}
	if len(open) != 6 { // three quarters
		t.Errorf("%d requests of one cluster are in flight", len(open))
	}
	if resp := get("/clusters/a/readyz"); resp.Status != 200 {
		t.Errorf("health: %d", resp.Status)
	}
	for range 20 {
		if resp := get("/clusters/b/slow"); resp.Status == 200 {
			open = append(open, resp)
		}
	}
	resp := get("/clusters/b/slow")
	if len(open) != 7 || resp.Status != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d open, then %d", len(open), resp.Status)
	}
	if resp := get("/clusters/a/api/v1/pods?watch=1"); resp.Status != 200 {
		t.Errorf("watches have slots of their own: %d", resp.Status)
	}
	for _, resp := range open {
		resp.Done(0, nil)
	}
	if n := r.short.InUse(); n != 0 || r.short.Users() != 0 {
		t.Errorf("%d slots are not released", n)
	}
}

// TestRouterShareOfMany: however many clusters are slow, a cluster without requests in flight gets
// one slot.
func TestRouterShareOfMany(t *testing.T) {
	r := NewRouter(RouterOptions{Prefix: "/clusters/", Health: healthz.New(), InFlight: 8, LongRunning: 8})
	var routes []Route
	for i := range 12 {
		name := fmt.Sprint("c", i)
		routes = append(routes, Route{PathPrefix: true, Target: r.NewTarget(name, echo(name))})
	}
	r.SetRoutes(routes)
	var open []*api.Response
	for _, query := range []string{"", "?watch=1"} {
		for i := range 12 {
			for n := range 20 {
				resp := r.Serve(t.Context(), newRequest("GET", "gw", "", fmt.Sprintf("/clusters/c%d/api/v1/pods%s", i, query)))
				switch {
				case resp.Status == 200:
					open = append(open, resp)
				case n == 0:
					t.Errorf("the first request of c%d%s: %d", i, query, resp.Status)
				}
			}
		}
	}
	if n := r.short.InUse(); n > 8+12 {
		t.Errorf("%d requests are in flight", n)
	}
	for _, resp := range open {
		resp.Done(0, nil)
	}
	if r.short.InUse() != 0 || r.long.InUse() != 0 || r.short.Users() != 0 {
		t.Error("slots are not released")
	}
}

// TestRouterRetires: Retire waits for requests in flight; new requests go to the replacement, if any.
func TestRouterRetires(t *testing.T) {
	r, targets := newTestRouter(0)
	open := r.Serve(t.Context(), newRequest("GET", "gw", "", "/clusters/b/x"))
	next := r.NewTarget("b", echo("new"))
	r.SetRoutes([]Route{{PathPrefix: true, Target: next}})
	retired := make(chan error)
	go func() { retired <- targets["b"].Retire(t.Context()) }()
	if resp := r.Serve(t.Context(), newRequest("GET", "gw", "", "/clusters/b/x")); !strings.HasPrefix(string(resp.Body), "new ") {
		t.Errorf("%s", resp.Body)
	}
	if resp := r.Serve(t.Context(), newRequest("GET", "gw", "", "/clusters/a/x")); resp.Status != 404 {
		t.Errorf("%d from a removed cluster", resp.Status)
	}
	select {
	case err := <-retired:
		t.Fatalf("retired under a request: %v", err)
	default:
	}
	open.Done(0, nil)
	if err := <-retired; err != nil {
		t.Error(err)
	}
	if targets["b"].enter() {
		t.Error("a request entered a retired target")
	}
	// Retire stops waiting when ctx ends.
	open = r.Serve(t.Context(), newRequest("GET", "gw", "", "/clusters/b/x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := next.Retire(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	open.Done(0, nil)
}

// TestRouterPanic: a handler that panics releases its slot.
func TestRouterPanic(t *testing.T) {
	r := NewRouter(RouterOptions{Prefix: "/clusters/", Health: healthz.New(), InFlight: 4})
	target := r.NewTarget("a", panics{})
	r.SetRoutes([]Route{{PathPrefix: true, Target: target}})
	func() {
		defer func() { _ = recover() }()
		r.Serve(t.Context(), newRequest("GET", "gw", "", "/clusters/a/x"))
	}()
	if r.short.InUse() != 0 || target.mu.open != 0 {
		t.Error("slots are not released")
	}
}

type panics struct{}

func (panics) Serve(context.Context, *api.Request) *api.Response { panic("as told") }

const tooMany = "Too many requests, please try again later."

// TestRejectionsOfClustersAreCounted has a request for each reason for which a Router rejects.
func TestRejectionsOfClustersAreCounted(t *testing.T) {
	const pods = "/clusters/a/api/v1/pods"
	for _, c := range []struct {
		why               reason.Rejection
		name              string
		host, sni, target string
		message           string
		open              []string // targets of requests in flight
	}{
		{reason.UnknownCluster, "none", "gw", "", "/api/v1/pods", "the request names none: use the path /clusters/NAME", nil},
		{reason.UnknownCluster, "another", "gw", "", "/clusters/x/api/v1/pods", "unknown cluster: use the path /clusters/NAME", nil},
		{reason.Misdirected, "", "a.example", "c.example", "/api/v1/pods", "the Host header and the TLS server name belong to different clusters", nil},
		{reason.ClusterPath, "", "gw", "", "/clusters/a/../c/api/v1/pods", "leads out of its cluster by dot segments", nil},
		{reason.AllClustersLimit, "short", "gw", "", pods, tooMany, []string{pods, "/clusters/b/api/v1/pods"}},
		{reason.AllClustersLimit, "long", "gw", "", pods + "?watch=1", tooMany, []string{pods + "?watch=1", "/clusters/b/api/v1/pods?watch=1"}},
		{reason.ClusterShare, "short", "gw", "", pods, tooMany, []string{pods}},
		{reason.ClusterShare, "long", "gw", "", pods + "?watch=1", tooMany, []string{pods + "?watch=1"}},
	} {
		t.Run(c.why.String()+" "+c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			r := NewRouter(RouterOptions{Prefix: "/clusters/", Health: healthz.New(), InFlight: 2, LongRunning: 2, Registerer: registry})
			routeTest(r)
			for _, target := range c.open {
				resp := r.Serve(t.Context(), newRequest("GET", "gw", "", target))
				if resp.Status != 200 {
					t.Fatalf("%s: %d", target, resp.Status)
				}
				defer resp.Done(0, nil)
			}
			rejectiontest.CheckResponse(t, registry, c.why, c.message, r.Serve(t.Context(), newRequest("GET", c.host, c.sni, c.target)))
		})
	}
}
