package admin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/healthz"
)

func start(t *testing.T, addr string, profiling bool) *Server {
	t.Helper()
	s, err := Start(Options{
		Addr: addr, Gatherer: prometheus.NewRegistry(), Health: healthz.New(), Profiling: profiling,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// TestVerify: who is on this machine, and no web page, has the cache compared by POST.
func TestVerify(t *testing.T) {
	var requested []string
	s, err := Start(Options{
		Addr: "0.0.0.0:0", Gatherer: prometheus.NewRegistry(), Health: healthz.New(), Log: slog.New(slog.DiscardHandler),
		Verify: func(_ context.Context, which func(schema.GroupVersionResource) bool) []VerifiedCollection {
			requested = nil
			for _, gvr := range []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "deployments"}} {
				if which(gvr) {
					requested = append(requested, gvr.Resource)
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	_, port, _ := net.SplitHostPort(s.Addr().String())
	for _, c := range []struct {
		method, query string
		change        func(*http.Request)
		code          int
		requested     string
	}{
		{method: "POST", code: 200, requested: "pods deployments"},
		{method: "POST", query: "?resource=pods", code: 200, requested: "pods"},
		{method: "POST", query: "?resource=deployments.apps&resource=pods", code: 200, requested: "pods deployments"},
		{method: "POST", query: "?resource=deployments.batch", code: 200},
		{method: "GET", code: 405},
		{method: "POST", code: 403, change: func(r *http.Request) { r.Host = "evil.example" }},
		{method: "POST", code: 403, change: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		{method: "POST", code: 403, change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1:"+port+VerifyPath+c.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(r)
		}
		requested = nil
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := strings.Join(requested, " "); resp.StatusCode != c.code || got != c.requested {
			t.Errorf("%s %s: %d, asked for %q; want %d, %q", c.method, c.query, resp.StatusCode, got, c.code, c.requested)
		}
	}
	elsewhere := httptest.NewRequest(http.MethodPost, VerifyPath, nil)
	elsewhere.Host, elsewhere.RemoteAddr = "127.0.0.1", "192.0.2.1:1"
	response := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(response, elsewhere)
	if response.Code != http.StatusForbidden {
		t.Errorf("from another machine: %d", response.Code)
	}
}

func get(t *testing.T, s *Server, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestPaths(t *testing.T) {
	for _, profiling := range []bool{true, false} {
		s := start(t, "127.0.0.1:0", profiling)
		for path, want := range map[string]int{
			"/": 200, "/metrics": 200, "/livez": 200, "/readyz": 200, "/other": 404,
			"/debug/pprof/": map[bool]int{true: 200, false: 404}[profiling], "/debug/pprof/cmdline": map[bool]int{true: 200, false: 404}[profiling],
		} {
			if code, _ := get(t, s, path, nil); code != want {
				t.Errorf("%s with profiling = %v: %d, want %d", path, profiling, code, want)
			}
		}
		_, list := get(t, s, "/", nil)
		for path := range strings.Lines(list) {
			if code, _ := get(t, s, strings.TrimSpace(path), nil); code != 200 {
				t.Errorf("%s is listed and %d", path, code)
			}
		}
		if strings.Contains(list, "pprof") != profiling {
			t.Errorf("with profiling = %v the list is %q", profiling, list)
		}
	}
}

// TestWebPagesAreRejected, on a loopback address.
func TestWebPagesAreRejected(t *testing.T) {
	s := start(t, "127.0.0.1:0", true)
	for name, change := range map[string]func(*http.Request){
		"rebinding": func(r *http.Request) { r.Host = "evil.example" },
		"no-cors":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"fetch":     func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		if code, body := get(t, s, "/debug/pprof/cmdline", change); code != 403 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, _ := get(t, s, "/metrics", func(r *http.Request) { r.Host = "localhost" }); code != 200 {
		t.Errorf("localhost: %d", code)
	}
	open := start(t, "0.0.0.0:0", false)
	if code, _ := get(t, open, "/metrics", func(r *http.Request) { r.Host = "gateway.monitoring" }); code != 200 {
		t.Errorf("a listener for others: %d", code)
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	if s := start(t, "127.0.0.1:0", false); s.http.IdleTimeout <= 0 {
		t.Error("idle connections stay open for ever")
	}
}
