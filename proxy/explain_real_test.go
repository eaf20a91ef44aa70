package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/explain"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// explainBench compares what is said of requests with what becomes of them.
type explainBench struct {
	*gatewayBench
	registry *prometheus.Registry
}

// counts are all metrics, by name and labels.
func (b *explainBench) counts() map[string]float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			all[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// one is the label of the one metric of a name that has grown, "" for none.
func one(before, after map[string]float64, name, label string) (value string) {
	for key, n := range after {
		if labels, ok := strings.CutPrefix(key, name+" "); ok && n > before[key] {
			for _, l := range strings.Fields(labels) {
				if v, ok := strings.CutPrefix(l, label+"="); ok {
					value = v
				}
			}
		}
	}
	return value
}

// real is what becomes of a request: its route and the reason of that.
func (b *explainBench) real(c explainCase) (route, why string) {
	b.t.Helper()
	before := b.counts()
	status, _, _ := b.do(c.line, c.header()...)
	after := b.counts()
	if why := one(before, after, "kubeweir_rejections_total", "reason"); why != "" {
		return explain.RouteRejected, why
	}
	route = one(before, after, "kubeweir_requests_total", "source")
	if route == "gateway" && status >= 400 {
		return explain.RouteRejected, ""
	}
	return route, one(before, after, "kubeweir_forwarded_reads_total", "reason")
}

// explain is what is said of a request. To say it changes nothing.
func (b *explainBench) explain(c explainCase) *explain.Explanation {
	b.t.Helper()
	method, target, _ := strings.Cut(c.line, " ")
	b.source.Calls()
	before, forwarded := b.counts(), b.upstream.count()
	e, err := b.gateway.Explain(b.t.Context(), explain.Question{Method: method, Target: target, User: c.user, UserAgent: c.agent, Accept: c.accept})
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	after := b.counts()
	for key, n := range after {
		if n != before[key] {
			b.t.Errorf("%s: to explain it changes %s from %v to %v", c, key, before[key], n)
		}
	}
	if len(after) != len(before) || len(b.source.Calls()) > 0 || b.upstream.count() != forwarded {
		b.t.Errorf("%s: to explain it asks somebody", c)
	}
	return e
}

// explainCase is a request. Where a reason is given, that is it; in any case what is said and what happens are the same.
type explainCase struct{ line, user, agent, accept, why string }

func (c explainCase) String() string {
	return strings.TrimSpace(c.line + " by " + c.user + " " + c.agent)
}

func (c explainCase) header() []string {
	header := []string{"Authorization: Bearer " + c.user}
	if c.agent != "" {
		header = append(header, "User-Agent: "+c.agent)
	}
	if c.accept != "" {
		header = append(header, "Accept: "+c.accept)
	}
	return header
}

// compare has a request explained, made, and explained again, once what may be known of it is.
func (b *explainBench) compare(c explainCase) *explain.Explanation {
	b.t.Helper()
	b.explain(c)
	b.do(c.line, c.header()...)
	synctest.Wait()
	explained := b.explain(c)
	route, why := b.real(c)
	synctest.Wait()
	again := b.explain(c)
	if explained.Route != route || explained.Why != why || again.Route != route || again.Why != why || c.why != "" && why != c.why {
		b.t.Errorf("%s: said %s %q, then %s %q, and it was %s %q, want the reason %q\n%s", c, explained.Route, explained.Why, again.Route, again.Why, route, why, c.why, explained.Text)
	}
	if explained.Text == "" || explained.Cost == "" || len(explained.Steps) < 3 || explained.PermissionText == "" || (explained.UpstreamRequests > 0) != (route != "gateway" && route != explain.RouteRejected && !strings.HasPrefix(explained.Cost, "Nothing")) {
		b.t.Errorf("%s: %+v", c, explained)
	}
	return explained
}

// TestExplainIsWhatHappens: the route and the reason that are said of a request are what the gateway then counts for it, and
// to say them counts, starts and sends nothing.
func TestExplainIsWhatHappens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newExplainBench(t)
		const pods, pod, ns = "GET /api/v1/pods", "GET /api/v1/namespaces/a/pods/a0", "GET /api/v1/namespaces"
		const yaml, protobuf = "application/yaml", "application/vnd.kubernetes.protobuf"
		const old = pods + "?watch=1&resourceVersion=1"
		if e := b.explain(explainCase{line: old, user: "ann"}); e.Route != explain.RouteUnknown || e.Why != "history" {
			t.Errorf("%s: %s %q", old, e.Route, e.Why) // once it was made, the history reaches back to it
		}
		for i, c := range []explainCase{
			{line: pods}, {line: pods + "?resourceVersion=0"}, {line: pods + "?resourceVersion=1"}, {line: pods + "?limit=2"}, {line: pods + "?resourceVersion=0&limit=2"},
			{line: pods + "?resourceVersion=00", why: "ambiguous-version"}, {line: pods + "?resourceVersion=x", why: "invalid-version"},
			{line: pods + "?labelSelector=n%3Da"}, {line: pods + "?labelSelector=%21%21", why: "inexact"}, {line: pods + "?fieldSelector=spec.none=x", why: "invalid-selector"},
			{line: pod}, {line: pod + "?resourceVersion=0"}, {line: pod + "x?resourceVersion=0"}, {line: pod + "/log", why: "subresource"}, {line: "HEAD /api/v1/pods", why: "head"},
			{line: pods + "?unknown=1", why: "inexact"}, {line: "GET /api/v1/nothings", why: "unknown-resource"}, {line: "GET /api/v1/pods/a0", why: "scope"},
			{line: pods, accept: yaml}, {line: pods + "?watch=1", accept: yaml, why: "representation"}, {line: pods, accept: protobuf},
			{line: ns}, {line: ns + "?resourceVersion=0"},
			{line: "POST /api/v1/namespaces/a/pods"}, {line: "DELETE /api/v1/namespaces/a/pods/a0"}, {line: "GET /version"}, {line: "GET /openapi/v2"}, {line: "GET /readyz"},
			{line: pods + "?watch=1"}, {line: pods + "?watch=1&resourceVersion=0"}, {line: old},
			{line: pods + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
			{line: pods + "?watch=1&resourceVersion=0&coalesce=500ms"}, {line: pods + "?watch=1&resourceVersion=0&coalesce=1h"},
			{line: pods + "?sortBy=.metadata.name"}, {line: pods + "?where=.metadata.namespace%3Da&resourceVersion=0"}, {line: pods + "?sortBy=name%5B"},
			{line: pods + "?sortBy=.metadata.name&watch=1", why: "query-unserved"}, {line: "DELETE /api/v1/namespaces/a/pods?where=.metadata.name%3Da", why: "query-unserved"},
			{line: "GET /api/v1/nothings?sortBy=.metadata.name"}, {line: pods + "?sortBy=.metadata.name&unknown=1", why: "query-unserved"},
			{line: pods + "?" + wholeShard}, {line: pods + "?resourceVersion=0&" + wholeShard}, {line: pods + "?shardSelector=x"},
			{line: "DELETE /api/v1/namespaces/a/pods?" + wholeShard, why: "shard-unknown"},
		} {
			users := []string{"ann", "dash", "red", "agent", "calm", "eve", "jane", "kim", "blocked"}
			if !soak.Enabled() { // two of the others in turn, in each round others together
				others := users[1:]
				users = []string{"ann", others[i%8], others[(i+1+i/8)%8]}
			}
			for _, user := range users {
				c := c
				if c.user = user; user != "ann" {
					c.why = ""
				}
				b.compare(c)
			}
		}
		for _, c := range []explainCase{
			{line: pods + "?resourceVersion=0", user: "eve", why: "forbidden"}, {line: pods + "?sortBy=.metadata.name", user: "eve", why: "forbidden"},
			{line: "POST /api/v1/namespaces/a/pods", user: "agent", why: "read-only"}, {line: "POST /api/v1/namespaces/a/pods/a0/exec", user: "agent", why: "read-only"},
			{line: "GET /metrics", user: "red", why: "redacted"}, {line: pod + "/log", user: "red", why: "redacted"}, {line: pod + "/status", user: "red", accept: protobuf, why: "redacted"},
			{line: "GET /version", user: "blocked", why: "blocked"}, {line: "GET /version", user: "ann", agent: "k9s/1", why: "blocked"},
			{line: pods, user: "kim", why: "forbidden"}, {line: pods + "?resourceVersion=00", user: "jane", why: "visible-unserved"},
			{line: pods + "?fieldSelector=metadata.namespace=b", user: "jane", why: "forbidden"}, {line: "GET /api/v1/namespaces/b/pods", user: "jane", why: "forbidden"},
		} {
			b.compare(c)
		}
	})
}

// newExplainBench is a gateway with a rule of each kind, before namespaces with pods.
func newExplainBench(t *testing.T) *explainBench {
	registry := prometheus.NewRegistry()
	v := newVisibleBenchFrom(t, func(s *cachetest.Source) source.Source { return cachetest.VersionLister{Source: s} }, func(o *Options) {
		o.Registerer = registry
		o.Blocked = policy.NewBlocked(nil)
		o.Policy.Rules = []policy.Rule{
			{Match: policy.Match{Users: []string{"dash"}}, Settings: policy.Settings{Mode: policy.ModeSession}},
			{Match: policy.Match{Users: []string{"red"}}, Settings: policy.Settings{Redacted: policy.Yes}},
			{Match: policy.Match{Users: []string{"agent"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
			{Match: policy.Match{Users: []string{"calm"}}, Settings: policy.Settings{Coalesce: time.Second, WatchBytesPerSecond: 100_000}},
			{Match: policy.Match{Users: []string{"jane", "kim"}}, Settings: policy.Settings{VisibleLists: policy.Yes}},
			{Match: policy.Match{Users: []string{"blocked"}}, Settings: policy.Settings{Block: policy.Yes}},
			{Match: policy.Match{Users: []string{"calm", "dash"}}, Settings: policy.Settings{Mode: policy.ModeStrict, Coalesce: time.Minute}},
		}
		if err := o.Blocked.Block("k9s*", time.Time{}); err != nil {
			t.Fatal(err)
		}
	})
	allowed := v.upstream.allowed
	v.upstream.response = func(*api.Request) *api.Response {
		body := []byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`)
		return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "application/json"}}, Body: body, Length: int64(len(body))}
	}
	v.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
		return r.ResourceAttributes == nil || allowed(r)
	}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}}
	for _, user := range []string{"ann", "dash", "red", "agent", "calm", "blocked"} {
		everywhere.Subjects = append(everywhere.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: user})
	}
	v.create(3, everywhere)
	v.fill(2, "a", "a-b", "b", "c")
	v.grant(jane, "a", "a-b", "c")
	b := &explainBench{v.gatewayBench, registry}
	for _, line := range []string{"GET /api/v1/pods?resourceVersion=0", "GET /api/v1/namespaces?resourceVersion=0"} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			b.do(line, "Authorization: Bearer ann", "Accept: "+accept)
		}
	}
	return b
}

// TestExplainSettings: each setting that counts names the rule that says it.
func TestExplainSettings(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newExplainBench(t)
		e := b.explain(explainCase{line: "GET /api/v1/pods?watch=1", user: "calm"})
		const want = "[{coalesce 1s rules[3]} {watchBytesPerSecond 100000 rules[3]} {consistency strict rules[6]} {offline deny } {selfReviews forwarded }]"
		if got := fmt.Sprint(e.Settings); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		steps := fmt.Sprint(e.Steps)
		for _, part := range []string{"events wait 1s for others of the same object, as rules[3] says", "above 100000 bytes/s they wait longer (watchBytesPerSecond of rules[3])"} {
			if !strings.Contains(steps, part) {
				t.Errorf("%q is not in %s", part, steps)
			}
		}
		for _, c := range []struct{ user, text string }{
			{"red", "(rules[1])"}, {"agent", "(rules[2])"}, {"blocked", "rules[5] blocks this client"},
		} {
			if e := b.explain(explainCase{line: "POST /api/v1/namespaces/a/pods", user: c.user}); !strings.Contains(e.Text, c.text) {
				t.Errorf("%s: %s", c.user, e.Text)
			}
		}
	})
}

// TestExplainVisible: what a list of all namespaces shows is told before anybody was asked, and in numbers afterwards.
func TestExplainVisible(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newExplainBench(t)
		pods := explainCase{line: "GET /api/v1/pods?resourceVersion=0", user: "jane"}
		if e := b.explain(pods); e.Visible != nil || e.PermissionKnown || !strings.Contains(fmt.Sprint(e.Steps), "rules[4] shows the namespaces in which the user may; the RBAC objects in the cache grant it in 3 namespaces") {
			t.Errorf("before: %+v", e)
		}
		b.do(pods.line, pods.header()...)
		e := b.explain(pods)
		if e.Visible == nil || *e.Visible != (explain.Visible{Known: true, Namespaces: 3, Rule: "rules[4]", Text: "rules[4] shows the 3 namespaces that are confirmed for the user"}) || e.Route != "cached" || e.Allowed {
			t.Errorf("afterwards: %+v %+v", e, e.Visible)
		}
		time.Sleep(time.Minute)
		if e := b.explain(pods); e.PermissionKnown || e.Route != "cached" {
			t.Errorf("a minute later: %+v", e)
		}
		if e := b.compare(explainCase{line: "GET /api/v1/pods", user: "jane"}); e.UpstreamRequests != 1 || e.Visible.Namespaces != 3 {
			t.Errorf("the most recent state: %+v", e)
		}
	})
}

// TestExplainBudgets: what becomes of a request over the budget of its sender is told, and that takes nothing from it.
func TestExplainBudgets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := &explainBench{newGatewayBench(t, func(o *Options) {
			o.Registerer = registry
			o.Policy.Rules = []policy.Rule{
				{Match: policy.Match{Users: []string{"poor"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1}},
				{Match: policy.Match{Users: []string{"calm"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1, OverBudget: policy.OverBudgetCached}},
				{Match: policy.Match{Users: []string{"large"}}, Settings: policy.Settings{UpstreamBytesPerSecond: 1 << 20}},
				{Match: policy.Match{Users: []string{"recent"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1, OverBudget: policy.OverBudgetCached, Mode: policy.ModeSession}},
			}
		}), registry}
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		lines := []string{"GET /api/v1/pods?resourceVersion=0", "GET /api/v1/pods", "GET /api/v1/namespaces/default/pods/a", "GET /api/v1/pods?watch=1&resourceVersion=0",
			"GET /api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "GET /version", "DELETE /api/v1/namespaces/default/pods/a",
			"GET /api/v1/pods?sortBy=.metadata.name", "GET /api/v1/pods?labelSelector=%21%21", "GET /api/v1/pods?fieldSelector=metadata.name%3Da&resourceVersion=0"}
		for _, user := range []string{"poor", "calm", "large"} {
			who := "Authorization: Bearer " + user
			for range 2 {
				b.do(lines[0], who)
			}
			b.do("GET /api/v1/namespaces/default/pods/a?resourceVersion=0", who)
			b.do("GET /api/v1/pods?watch=1&resourceVersion=0", who)
			if e := b.explain(explainCase{line: lines[5], user: user}); e.Route != "forwarded" || !strings.Contains(fmt.Sprint(e.Steps), "something is left") {
				t.Errorf("%s: before: %+v", user, e)
			}
			for range 20 {
				b.do("GET /version", who)
			}
			for _, line := range lines {
				e := b.compare(explainCase{line: line, user: user})
				if user == "poor" && (e.Why == "over-budget") != (e.Route == explain.RouteRejected) {
					t.Errorf("%s: %+v", line, e)
				}
			}
		}
		poor := explainCase{line: "GET /version", user: "poor"}
		if e := b.explain(poor); e.Why != "over-budget" || !strings.Contains(e.Text, "rules[0]") || !strings.Contains(e.Text, "429") {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if e := b.explain(poor); e.Route != "forwarded" {
			t.Errorf("a minute later: %+v", e)
		}

		// In session mode a stale collection serves clients that are over their budget, too.
		recent := explainCase{line: "GET /api/v1/pods", user: "recent"}
		b.do(recent.line, recent.header()...)
		b.source.SetDown(true)
		time.Sleep(5 * time.Second)
		for range 20 {
			b.do("GET /version", recent.header()...)
		}
		if e := b.compare(recent); e.Route != "cached" {
			t.Errorf("of a stale collection: %+v", e)
		}
	})
}

// TestExplainOffline: while no API server answers it is told who is served, and by what.
func TestExplainOffline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		bench := newOfflineBench(t, policy.ModeStrict, policy.Offline{TTL: time.Hour},
			policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{Offline: policy.Yes, Mode: policy.ModeSession}}, policy.Rule{Match: policy.Match{Users: []string{"joe"}}, Settings: policy.Settings{Mode: policy.ModeSession}})
		b := &explainBench{bench.gatewayBench, bench.registry}
		lines := []string{"GET /api/v1/pods?resourceVersion=0", "GET /api/v1/pods", "GET /api/v1/namespaces/default/pods/a", "GET /api/v1/pods?watch=1&resourceVersion=0",
			"GET /api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "DELETE /api/v1/namespaces/default/pods/a",
			"GET /api/v1/pods?sortBy=.metadata.name"}
		all := func() {
			for _, user := range []string{"jane", "joe", "ann"} {
				for _, line := range lines {
					b.compare(explainCase{line: line, user: user})
				}
			}
		}
		all()
		bench.leave()
		time.Sleep(2 * time.Second)
		all()
		if e := b.explain(explainCase{line: lines[1], user: "jane"}); e.Route != "cached" || !strings.Contains(e.Text, "age, 2 s") {
			t.Errorf("offline: %+v", e)
		}
		if e := b.explain(explainCase{line: lines[0], user: "nobody"}); e.Route != explain.RouteUnknown || !strings.Contains(e.Text, "cannot be reviewed") {
			t.Errorf("an unknown permission: %+v", e)
		}
		time.Sleep(2 * time.Hour)
		if e := b.explain(explainCase{line: lines[0], user: "jane"}); e.Route == "cached" {
			t.Errorf("two hours later: %+v", e)
		}
	})
}
