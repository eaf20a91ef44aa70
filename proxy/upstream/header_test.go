package upstream

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
)

// TestMalformedRequests: names that would arrive as others must not be sent.
func TestMalformedRequests(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	c := s.client(t)
	for name, change := range map[string]func(*api.Request){
		"header name":    func(r *api.Request) { r.Header.Add("A b", "c") },
		"header value":   func(r *api.Request) { r.Header.Add("A", "b\r\nX-Remote-User: admin") },
		"blank in path":  func(r *api.Request) { r.RawPath = "/api /v1" },
		"control byte":   func(r *api.Request) { r.RawPath = "/api\r\nX: y" },
		"query":          func(r *api.Request) { r.RawQuery = "a=b c" },
		"not a path":     func(r *api.Request) { r.RawPath = "https://other/api" },
		"CONNECT":        func(r *api.Request) { r.Method = "CONNECT" },
		"method":         func(r *api.Request) { r.Method = "GE T" },
		"header no name": func(r *api.Request) { r.Header.Add("", "x") },
	} {
		r := request("GET", "/api/v1/pods")
		change(r)
		resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
		finish(t, resp)
		if resp.Status != 400 && resp.Status != 405 {
			t.Errorf("%s: status %d: %s", name, resp.Status, resp.Body)
		}
	}
	if s.count() != 0 {
		t.Error("a malformed request was sent")
	}
}

// TestHeadersOnTheWire sends everything through real connections: what matters is
// what the upstream and the client see.
func TestHeadersOnTheWire(t *testing.T) {
	for name, options := range map[string][]serverOption{"HTTP2": nil, "HTTP1": {http1Only}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Warning"] = []string{`299 - "one"`, `299 - "two"`}
				w.Header().Set("X-Kubernetes-PF-FlowSchema-UID", "u")
				w.Header().Set("Audit-Id", r.Header.Get("Audit-Id"))
				w.WriteHeader(429)
			}, options...)
			c := s.client(t)
			resp := c.Forward(testContext(t), request("DELETE", "/api/v1/pods", "Audit-Id", "mine", "Idempotency-Key", "k", "Connection", "close"), Credentials{})
			finish(t, resp)
			if got := resp.Header.Values("Warning"); !slices.Equal(got, []string{`299 - "one"`, `299 - "two"`}) {
				t.Errorf("warnings %q", got)
			}
			if resp.Status != 429 || resp.Header.Get("Audit-Id") != "mine" || resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") != "u" {
				t.Errorf("%d %+v", resp.Status, resp.Header)
			}
			seen := s.last(t).Header
			names := slices.Sorted(maps.Keys(seen))
			want := []string{"Audit-Id", "Idempotency-Key", "X-Forwarded-For"}
			if !slices.Equal(names, want) {
				t.Errorf("the upstream saw the lines %q, want %q", names, want)
			}
		})
	}
}
