package proxy

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// newDiscoveryBench is a gateway in session mode before an upstream that says how often it was
// asked, and knows nothing of a path with "none".
func newDiscoveryBench(t *testing.T, change func(*Options)) *aggregationBench {
	b := newAggregationBenchWith(t, func(o *Options) {
		o.Policy.Consistency = policy.Consistency{Default: policy.ModeSession}
		if change != nil {
			change(o)
		}
	}, nil)
	b.upstream.response = func(r *api.Request) *api.Response {
		status := 200
		if strings.Contains(r.Path, "none") {
			status = 404
		}
		h := api.Header{{Name: "Content-Type", Value: formOf(r)}, {Name: "Audit-Id", Value: "upstream"}}
		return &api.Response{Status: status, Header: h, Body: fmt.Appendf(nil, "%s%s %d", r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), b.upstream.count())}
	}
	return b
}

// formOf is the form of an answer.
func formOf(r *api.Request) string {
	if accept := r.Header.Get("Accept"); strings.HasPrefix(accept, "application/json;g=") {
		return accept
	}
	return "application/json"
}

// reachesUpstream sends a request, and reports whether the upstream was asked.
func (b *aggregationBench) reachesUpstream(line string, header ...string) bool {
	b.t.Helper()
	before := b.upstream.count()
	status, body, _ := b.do(line, header...)
	if want := map[bool]int{true: 404, false: 200}[strings.Contains(line, "none")]; status != want {
		b.t.Errorf("%s: %d %s", line, status, body)
	}
	return b.upstream.count() > before
}

// discoveryPaths are those whose answers are remembered.
var discoveryPaths = []string{
	"/version", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/none", "/apis/none.example.com/v1", "/apis/apps/v1?timeout=32s",
	"/apis/none.example.com/v1/things?limit=10", "/apis/none.example.com/v1/namespaces/default/things/one",
}

// TestDiscoveryIsRemembered: what the upstream serves is answered as it answered the same user
// lately, for as long as a permission counts.
func TestDiscoveryIsRemembered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newDiscoveryBench(t, nil)
		for _, path := range discoveryPaths {
			first, again := b.reachesUpstream("GET "+path), b.reachesUpstream("GET "+path)
			if !first || again {
				t.Errorf("%s: asked first %t, then %t", path, first, again)
			}
			for _, other := range []string{"Authorization: Bearer jane", "Impersonate-User: jane", "Accept: application/yaml", "Accept-Encoding: gzip", "User-Agent: curl/8", "Origin: https://example.com"} {
				if !b.reachesUpstream("GET "+path, other) {
					t.Errorf("%s with %s is answered with what another was", path, other)
				}
			}
		}
		for _, path := range []string{"/api", "/apis"} {
			const aggregated = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
			if first, again := b.reachesUpstream("GET "+path, aggregated), b.reachesUpstream("GET "+path, aggregated); !first || again {
				t.Errorf("%s, aggregated: asked first %t, then %t", path, first, again)
			}
		}
		time.Sleep(11 * time.Second)
		for _, path := range discoveryPaths {
			if !b.reachesUpstream("GET " + path) {
				t.Errorf("%s is remembered for longer than a permission", path)
			}
		}
		b.gateway.Authorizer.Invalidate()
		if !b.reachesUpstream("GET /version") {
			t.Error("a change of an RBAC object leaves an answer")
		}
	})
}

// TestDiscoveryAfterChanges: a change of a definition or of an APIService ends what was
// answered, and nothing is kept before the API servers have taken note of it.
func TestDiscoveryAfterChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newDiscoveryBench(t, nil)
		for _, change := range []struct {
			what string
			make func()
		}{
			{"a definition comes", func() { b.source.Create(discovery.CustomResourceDefinitions, projectDefinition("Project")) }},
			{"a definition changes", func() { b.source.Update(discovery.CustomResourceDefinitions, projectDefinition("Other")) }},
			{"an APIService comes", func() { b.source.Create(discovery.APIServices, apiService("projects")) }},
			{"an APIService goes", func() { b.source.Delete(discovery.APIServices, "v1."+projects.Group) }},
			{"a definition goes", func() { b.source.Delete(discovery.CustomResourceDefinitions, "projects."+projects.Group) }},
		} {
			for range 2 {
				b.reachesUpstream("GET /apis/none/v1")
			}
			if b.reachesUpstream("GET /apis/none/v1") {
				t.Errorf("before %s it is not remembered", change.what)
			}
			change.make()
			synctest.Wait()
			for range 3 {
				time.Sleep(discoverySettles / 4)
				if !b.reachesUpstream("GET /apis/none/v1") {
					t.Errorf("soon after %s an answer is remembered", change.what)
				}
			}
			time.Sleep(discoverySettles)
		}
	})
}

// TestDiscoveryAfterWrites: who makes a definition through the gateway does not get what was
// answered before.
func TestDiscoveryAfterWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newDiscoveryBench(t, nil)
		b.reachesUpstream("GET /apis/apps/v1")
		previous := b.upstream.response
		b.source.Hold()
		b.upstream.response = func(*api.Request) *api.Response {
			o := b.source.Create(discovery.CustomResourceDefinitions, projectDefinition("Project"))
			return &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(fmt.Sprintf(
				`{"kind":"CustomResourceDefinition","metadata":{"name":%q,"resourceVersion":%q}}`, o.GetName(), o.GetResourceVersion()))}
		}
		resp := b.gateway.Serve(t.Context(), request("POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", "Content-Type: application/json"))
		var sink strings.Builder
		_, _ = resp.BodyTo.WriteTo(&sink)
		resp.Done(0, nil)
		b.upstream.response = previous
		go func() {
			time.Sleep(time.Second / 2)
			b.source.Release()
		}()
		if !b.reachesUpstream("GET /apis/apps/v1") {
			t.Error("answered with what was before the write")
		}
	})
}

// TestDiscoveryThatIsForwarded: what is not certain to be the same is asked each time.
func TestDiscoveryThatIsForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newDiscoveryBench(t, func(o *Options) {
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"strict"}}, Settings: policy.Settings{Mode: policy.ModeStrict}}}
		})
		b.upstream.allowed = nobodyImpersonates
		twice := func(line string, header ...string) {
			t.Helper()
			b.reachesUpstream(line, header...)
			if !b.reachesUpstream(line, header...) {
				t.Errorf("%s %q is remembered", line, header)
			}
		}
		for _, path := range []string{"/api", "/api/", "/api/v1/", "/apis/", "/apis//v1", "/apis/apps/", "/apis/apps/v1/", "/openapi/v3", "/version/", "/metrics"} {
			twice("GET " + path)
		}
		// A group version that somebody serves, of whose resources none are known.
		b.source.Create(discovery.APIServices, unstructuredNamed("v1.none.example.org", map[string]any{"group": "none.example.org", "version": "v1", "service": map[string]any{"name": "none"}}))
		time.Sleep(2 * discoverySettles)
		twice("GET /apis/none.example.org/v1/things")
		twice("GET /apis/none.example.com/v1/things?watch=1")
		twice("HEAD /version")
		twice("POST /version")
		twice("GET /version", "Authorization: Bearer strict")
		twice("GET /version", "Impersonate-User: joe")
		twice("GET /apis", `If-None-Match: "x"`)
		twice("GET /api", "Accept: text/plain;as=APIGroupDiscoveryList") // answered in the other form
		length := maxSavedResponse + 1
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 200, Body: make([]byte, length)} }
		twice("GET /apis/apps/v2")
		length = maxSavedDocument + 1
		twice("GET /apis?large")
		before := b.upstream.count()
		if b.reachesUpstream("GET /apis?large"); b.upstream.count() != before+1 {
			t.Errorf("what is known to be too large is asked for %d times", b.upstream.count()-before)
		}
		b.upstream.response = nil
		b.source.SetDown(true)
		time.Sleep(time.Minute) // by then definitions and APIServices are stale
		twice("GET /apis/apps")
	})
}

// TestDocumentsUnderWay: however many answers with all that the upstream serves are asked for, in
// however many ways, few are held at a time, and nobody has all places.
func TestDocumentsUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newDiscoveryBench(t, nil)
		document := strings.Repeat("x", maxSavedDocument)
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Length: -1, BodyTo: strings.NewReader(document)}
		}
		held := func(user, path string) (responses []*api.Response) {
			for i := range 2 * maxSavedDocuments {
				resp := b.gateway.Serve(t.Context(), request(fmt.Sprintf("GET %s?%d", path, i), "Authorization: Bearer "+user))
				if resp.BodyTo != nil {
					resp.Done(0, nil)
				} else if string(resp.Body) != document {
					t.Errorf("%d, %d bytes", resp.Status, len(resp.Body))
				} else {
					responses = append(responses, resp)
				}
			}
			return responses
		}
		first, second := held("joe", "/apis"), held("jane", "/apis")
		if len(first) == 0 || len(second) == 0 || len(first)+len(second) > maxSavedDocuments {
			t.Errorf("of one user %d are held, of another %d", len(first), len(second))
		}
		places := b.gateway.memory.documentSlots
		again := b.gateway.Serve(t.Context(), request("GET /apis?0", "Authorization: Bearer joe")) // is remembered, or forwarded
		for _, resp := range append(append(first, second...), again) {
			resp.Done(0, nil)
		}
		if n := places.InUse(); n != 0 || places.Users() != 0 {
			t.Errorf("%d places of %d users are not given back", n, places.Users())
		}
		if small := held("joe", "/apis/apps"); len(small) > 0 { // which nobody bounds
			t.Errorf("%d answers of %d bytes are held, which are not remembered", len(small), len(document))
		}
	})
}

// TestDiscoveryWhileAway: what was answered before the upstream went away, or before what is heard
// of it is late, says how old it is, and is no older than the gateway may serve.
func TestDiscoveryWhileAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newDiscoveryBench(t, func(o *Options) {
			o.Policy.Offline, o.Reachable = policy.Offline{Allow: true, TTL: 6 * time.Second}, func() bool { return !away.Load() }
		})
		b.reachesUpstream("GET /version")
		from := func(when, age string) {
			t.Helper()
			before := b.upstream.count()
			if status, body, h := b.do("GET /version"); b.upstream.count() != before || status != 200 || h.Get("Age") != age || strings.HasPrefix(h.Get("Warning"), "110 ") != (age != "") {
				t.Errorf("%s: %d %s %v", when, status, body, h)
			}
		}
		from("while the upstream answers", "")
		b.source.SetDelay(2 * time.Second)
		from("late", "2")
		b.source.SetDelay(0)
		b.source.SetDown(true)
		away.Store(true)
		time.Sleep(5 * time.Second)
		from("away", "5")
		time.Sleep(2 * time.Second)
		if !b.reachesUpstream("GET /version") {
			t.Error("answered with what is older than the gateway may serve")
		}
	})
}
