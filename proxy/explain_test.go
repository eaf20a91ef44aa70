package proxy

import (
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/explain"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestExplain: what is said of a request is what becomes of it, and to say it sends, starts
// and counts nothing.
func TestExplain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		referring := func(s *cachetest.Source) source.Source { return cachetest.VersionLister{Source: s} }
		b := newGatewayBenchFrom(t, nil, referring, func(o *Options) {
			o.Policy.Rules = []policy.Rule{
				{Match: policy.Match{Users: []string{"dash"}}, Settings: policy.Settings{Mode: policy.ModeSession}},
				{Match: policy.Match{UserAgents: []string{"agent*"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
			}
		})
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "eve" }
		explain := func(line, user, agent string) *explain.Explanation {
			t.Helper()
			method, target, _ := strings.Cut(line, " ")
			e, err := b.gateway.Explain(t.Context(), explain.Question{Method: method, Target: target, User: user, UserAgent: agent, Accept: "application/json"})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		const list = "GET /api/v1/pods"
		for range 10 {
			explain(list+"?resourceVersion=0", "jane", "")
		}
		time.Sleep(time.Hour)
		if e := explain(list+"?resourceVersion=0", "jane", ""); len(b.gateway.Collections()) != 0 || e.PermissionKnown || e.Route != "cached" || e.UpstreamRequests != 2 {
			t.Errorf("before anything: %+v", e)
		}
		for _, user := range []string{"jane", "eve", "dash"} {
			b.do(list+"?resourceVersion=0", "Authorization: Bearer "+user)
			b.do("GET /api/v1/namespaces/default/pods/a", "Authorization: Bearer "+user)
			b.do(list, "Authorization: Bearer "+user)
		}
		for _, c := range []struct{ line, user, agent, route, why string }{
			{list + "?resourceVersion=0", "jane", "", "cached", ""},
			{list + "?resourceVersion=0", "eve", "", "rejected", "forbidden"},
			{list, "jane", "", "revalidated", ""},
			{list, "dash", "", "cached", ""},
			{"GET /api/v1/namespaces/default/pods/a", "jane", "", "collapsed", ""},
			{"GET /api/v1/namespaces/default/pods/a/log", "jane", "", "forwarded", "subresource"},
			{"GET /api/v1//pods", "jane", "", "forwarded", "inexact"},
			{"GET /api/v1/nothings", "jane", "", "forwarded", "unknown-resource"},
			{"GET /version", "jane", "", "forwarded", ""},
			{"GET /readyz", "jane", "", "gateway", ""},
			{"DELETE /api/v1/namespaces/default/pods/a", "jane", "", "forwarded", ""},
			{"DELETE /api/v1/namespaces/default/pods/a", "jane", "agent/1", "rejected", "read-only"},
			{"GET https://gateway.example:8443/api/v1/pods?watch=1", "dash", "", "cached", ""},
		} {
			e := explain(c.line, c.user, c.agent)
			if e.Route != c.route || e.Why != c.why || e.Text == "" || e.Cost == "" || len(e.Steps) < 2 || e.PermissionText == "" {
				t.Errorf("%s by %s: %+v", c.line, c.user, e)
			}
		}
		if e := explain(list, "dash", ""); !slices.Contains(e.Settings, policy.DecidedSetting{Name: "consistency", Value: "session", Rule: "rules[0]"}) || e.Collection == nil || e.Collection.Objects != 1 {
			t.Errorf("%+v", e)
		}
	})
}

func TestExplainBadQuestions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		for _, q := range []explain.Question{
			{}, {Method: "GET"}, {Method: "GET", Target: "pods"}, {Method: "GET", Target: "/%zz"}, {Method: "G T", Target: "/"},
			{Method: strings.Repeat("G", 17), Target: "/"}, {Method: "GET", Target: "/" + strings.Repeat("x", 8<<10)},
		} {
			if e, err := b.gateway.Explain(t.Context(), q); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%.50v: %+v, %v", q, e, err)
			}
		}
	})
}

// TestRecent: what is refused is remembered once for all alike, to a bound, by names.
func TestRecent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.upstream.allowed = func(*authorizationv1.SubjectAccessReviewSpec) bool { return false }
		for range 3 {
			b.do("GET /api/v1/namespaces/default/pods/secret-name?resourceVersion=0", "User-Agent: kubectl")
		}
		list := b.gateway.Denials()
		if len(list) != 1 || list[0].Count != 3 || list[0].User != "admin" || list[0].Name != "secret-name" || list[0].UserAgent != "kubectl" {
			t.Fatalf("%+v", list)
		}
		for i := range 3 * maxDenials {
			b.do("GET /api/v1/namespaces/default/pods/a" + strings.Repeat("x", i) + "?resourceVersion=0")
		}
		list = b.gateway.Denials()
		if len(list) != maxDenials || len(list[0].Name) > 300 || list[0].ID <= list[1].ID {
			t.Errorf("%d, the last %+v", len(list), list[0])
		}
	})
}

// TestExplainBlocked: who is blocked is told so.
func TestExplainBlocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		blocked := policy.NewBlocked(nil)
		b := newGatewayBench(t, func(o *Options) {
			o.Blocked = blocked
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"eve"}}, Settings: policy.Settings{Block: policy.Yes}}}
		})
		if err := blocked.Block("k9s*", time.Time{}); err != nil {
			t.Fatal(err)
		}
		for _, one := range []struct {
			user, agent string
			blocked     bool
		}{{"jane", "k9s/1", true}, {"eve", "kubectl", true}, {"jane", "kubectl", false}} {
			for _, target := range []string{"/api/v1/pods?resourceVersion=0", "/version"} {
				e, err := b.gateway.Explain(t.Context(), explain.Question{Method: "GET", Target: target, User: one.user, UserAgent: one.agent})
				if err != nil || (e.Route == explain.RouteRejected && e.Why == "blocked") != one.blocked {
					t.Errorf("%+v: %v %+v", one, err, e)
				}
			}
		}
		if blocked.List()[0].Rejected != 0 {
			t.Error("a question is counted")
		}
	})
}

// TestOpenWatches: who watches is known while it lasts, and an operator may end it.
func TestOpenWatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		resp := b.gateway.Serve(t.Context(), request("GET /api/v1/namespaces/default/pods?watch=1&resourceVersion=0&labelSelector=app%3Dweb", "User-Agent: kubectl"))
		w := &closedWriter{closed: make(chan struct{})}
		resp.Stream.Start(w)
		list := b.gateway.OpenWatches()
		if len(list) != 1 || list[0].User != "admin" || list[0].UserAgent != "kubectl" || list[0].Namespace != "default" || list[0].LabelSelector != "app=web" || list[0].Lagging() {
			t.Fatalf("%+v", list)
		}
		if b.gateway.EndWatch(list[0].ID + 1) {
			t.Error("another watch was ended")
		}
		if !b.gateway.EndWatch(list[0].ID) {
			t.Error("it was not ended")
		}
		<-w.closed
		resp.Stream.Stop()
		resp.Done(0, nil)
		ended := b.gateway.EndedWatches()
		if len(b.gateway.OpenWatches()) != 0 || len(ended) != 1 || ended[0].Reason != "operator" || ended[0].User != "admin" {
			t.Errorf("%+v", ended)
		}
	})
}

// closedWriter is a client that reads everything.
type closedWriter struct{ closed chan struct{} }

func (w *closedWriter) WriteFrames([][]byte) error { return nil }
func (w *closedWriter) Close()                     { close(w.closed) }
func (w *closedWriter) Abort()                     { close(w.closed) }

// TestExplainOfflineDiscovery: what the upstream said last is the answer only where it said something.
func TestExplainOfflineDiscovery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		read := time.Now()
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Offline = policy.Offline{Allow: true, TTL: time.Hour}
			o.Reachable = func() bool { return false }
			o.Discovered = func() discovery.Documents { return discovery.Documents{At: read, Version: []byte(`{}`)} }
		})
		look := func(target string) *explain.Explanation {
			e, err := b.gateway.Explain(t.Context(), explain.Question{Method: "GET", Target: target, User: "jane"})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		for target, route := range map[string]string{"/version": explain.RouteUnknown, "/logs": "forwarded", "/apis": "forwarded"} {
			if e := look(target); e.Route != route || (route == "forwarded") != strings.Contains(e.Text, "so the request fails") {
				t.Errorf("%s: %s, %s", target, e.Route, e.Text)
			}
		}
		time.Sleep(2 * time.Hour)
		if e := look("/version"); e.Route != "forwarded" {
			t.Errorf("after the TTL: %s, %s", e.Route, e.Text)
		}
	})
}
