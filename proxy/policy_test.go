package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// reload replaces the policy by one that differs from the present one as change says.
func (b *gatewayBench) reload(change func(*policy.Policy)) {
	p := b.gateway.policy.Load().Policy
	change(&p)
	b.gateway.SetPolicy(p)
}

// TestSetPolicyServesNewRequests: rules that are replaced hold for the next request.
func TestSetPolicyServesNewRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		const write = "POST /api/v1/namespaces/default/pods"
		expect := func(line string, want int) {
			t.Helper()
			if code, body, _ := b.do(line); code != want {
				t.Errorf("%s: %d %s, want %d", line, code, body, want)
			}
		}
		b.responds(api.Response{Status: 201, Body: []byte("{}")})
		expect(write, 201)
		b.reload(func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"*"}}, Settings: policy.Settings{ReadOnly: policy.Yes}}}
		})
		expect(write, 403)
		b.reload(func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"*"}}, Settings: policy.Settings{Block: policy.Yes}}}
		})
		expect(podsFromCache, 429)
		b.reload(func(p *policy.Policy) { p.Rules = nil })
		expect(write, 201)
		expect(podsFromCache, 200)
		b.reload(func(p *policy.Policy) { p.Limits.InFlight = 1 })
		b.gateway.slots.inFlight.Acquire("somebody", 1)
		expect(podsFromCache, 429)
		b.reload(func(p *policy.Policy) { p.Limits.InFlight = 2 })
		expect(podsFromCache, 200)
	})
}

// TestSetPolicyEndsStreams: a watch ends, with nothing that was still due, if the new policy rejects it or serves it in
// another way, and goes on otherwise.
func TestSetPolicyEndsStreams(t *testing.T) {
	rule := func(s policy.Settings) func(*policy.Policy) {
		return func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"*"}}, Settings: s}}
		}
	}
	for name, test := range map[string]struct {
		change func(*policy.Policy)
		ends   bool
	}{
		"the same":       {func(*policy.Policy) {}, false},
		"session":        {rule(policy.Settings{Mode: policy.ModeSession}), false},
		"offline":        {func(p *policy.Policy) { p.Offline = policy.Offline{Allow: true, TTL: time.Hour} }, false},
		"limits":         {func(p *policy.Policy) { p.Limits.LongRunning = 1 }, false},
		"request budget": {rule(policy.Settings{UpstreamRequestsPerSecond: 5}), false},
		"read only":      {rule(policy.Settings{ReadOnly: policy.Yes}), false},
		"blocked":        {rule(policy.Settings{Block: policy.Yes}), true},
		"redacted":       {rule(policy.Settings{Redacted: policy.Yes}), true},
		"dropped":        {rule(policy.Settings{DropManagedFields: policy.Yes}), true},
		"visible":        {rule(policy.Settings{VisibleLists: policy.Yes}), true},
		"pace":           {func(p *policy.Policy) { p.Pace = watch.Pace{Coalesce: time.Second} }, true},
		"byte budget":    {rule(policy.Settings{UpstreamBytesPerSecond: 1 << 20}), true},
		"other clients": {func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{UserAgents: []string{"k9s*"}}, Settings: policy.Settings{Block: policy.Yes, Redacted: policy.Yes}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, nil)
				b.startCounting()
				resp := b.count("GET /api/v1/pods?watch=1&resourceVersion=0&allowWatchBookmarks=true")
				w := &countingWriter{}
				resp.Stream.Start(w)
				defer resp.Stream.Stop()
				b.reload(test.change)
				time.Sleep(2 * time.Second)
				if _, closed := w.state(); closed != test.ends {
					t.Errorf("ended: %t", closed)
				}
			})
		})
	}
}

// TestSetPolicyEndsOldRequests: a watch whose policy was replaced before it was answered ends, too.
func TestSetPolicyEndsOldRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.startCounting()
		resp := b.count("GET /api/v1/pods?watch=1&resourceVersion=0")
		b.reload(func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"*"}}, Settings: policy.Settings{Redacted: policy.Yes}}}
		})
		w := &countingWriter{}
		resp.Stream.Start(w)
		defer resp.Stream.Stop()
		time.Sleep(2 * time.Second)
		if _, closed := w.state(); !closed {
			t.Error("goes on by the rules of before")
		}
	})
}

// TestSetPolicyEndsUpgrades: a client that may only read from now on loses its exec session.
func TestSetPolicyEndsUpgrades(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.startCounting()
		b.responds(api.Response{Status: 101, Upgrade: func(conn net.Conn) { _, _ = io.Copy(conn, conn) }})
		exec := b.gateway.Serve(t.Context(), request("POST /api/v1/namespaces/default/pods/a/exec", "Upgrade: SPDY/3.1"))
		here, there := net.Pipe()
		go exec.Upgrade(there)
		b.reload(func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"*"}}, Settings: policy.Settings{ReadOnly: policy.Yes}}}
		})
		time.Sleep(2 * time.Second)
		if _, err := here.Read(make([]byte, 1)); err == nil {
			t.Error("the session goes on")
		}
	})
}

// TestSetPolicyKeepsBudgets: what was spent stays spent while the budget is the same, wherever its rule stands.
func TestSetPolicyKeepsBudgets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		budget := policy.Rule{Match: policy.Match{Users: []string{"*"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1}}
		b := budgetBench(t, budget)
		exhaust := func() (granted int) {
			for range 20 {
				if b.count(aVersion).Status != 429 {
					granted++
				}
			}
			return granted
		}
		if n := exhaust(); n == 0 || n == 20 {
			t.Fatalf("%d requests were granted", n)
		}
		b.reload(func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: policy.Match{UserAgents: []string{"k9s*"}}, Settings: policy.Settings{ReadOnly: policy.Yes}}, budget}
		})
		if n := exhaust(); n > 0 {
			t.Errorf("%d requests were granted after the rule had moved", n)
		}
		if n, err := testutil.GatherAndCount(b.gateway.Registerer.(*prometheus.Registry), "kubeweir_budget_exceeded_total"); n != 2 || err != nil {
			t.Errorf("%d counters of one rule", n)
		}
		if states := b.gateway.Budgets(); len(states) != 1 || states[0].Rule != "rules[1]" || states[0].Rejected == 0 {
			t.Errorf("%+v", states)
		}
		budget.Settings.UpstreamRequestsPerSecond = 2
		b.reload(func(p *policy.Policy) { p.Rules = []policy.Rule{budget} })
		if n := exhaust(); n == 0 {
			t.Error("another budget begins with what the old one had spent")
		}
	})
}

// TestSetPolicyKeepsEachBudget: of rules that match the same clients, each budget goes on with its own.
func TestSetPolicyKeepsEachBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := policy.Match{Users: []string{"*"}}
		b := budgetBench(t, policy.Rule{Match: all, Settings: policy.Settings{UpstreamRequestsPerSecond: 5}}, policy.Rule{Match: all, Settings: policy.Settings{UpstreamBytesPerSecond: 1 << 20}}, policy.Rule{Match: all, Settings: policy.Settings{UpstreamBytesPerSecond: 1 << 21}})
		before := b.gateway.budgets()
		b.reload(func(p *policy.Policy) { p.Limits.InFlight++ })
		for i, now := range b.gateway.budgets() {
			if !now.Requests.Same(before[i].Requests) || !now.Bytes.Same(before[i].Bytes) {
				t.Errorf("%s has another budget", now.Name)
			}
		}
	})
}

// TestSetPolicySession: session reads see writes that went through the gateway before session mode was on, although their
// answers were not read.
func TestSetPolicySession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.do(podsFromCache)
		b.source.Hold()
		b.creates("b")
		b.reload(func(p *policy.Policy) {
			p.Consistency = policy.Consistency{Default: policy.ModeSession, MaxStaleness: time.Minute}
		})
		go func() {
			time.Sleep(50 * time.Millisecond)
			b.source.Release()
		}()
		if got, cached := b.list(); cached && got != "a b" {
			t.Errorf("%q from the cache", got)
		}
		if got, cached := b.list(); !cached || got != "a b" {
			t.Errorf("%q, cached %t, once it was proved", got, cached)
		}
		b.lateFeed()
		b.creates("c")
		if got, cached := b.list(); !cached || got != "a b c" {
			t.Errorf("%q, cached %t, after a write that was observed", got, cached)
		}
	})
}

// TestDropRule: clients of a rule with drop are answered from the cache without managedFields, and nobody else is.
func TestDropRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{UserAgents: []string{"lean/*"}, Resources: []string{"pods"}}, Settings: policy.Settings{DropManagedFields: policy.Yes}}}
		})
		pod := cachetest.Pod("default/a", "")
		pod.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update"}})
		b.source.Create(cachetest.Pods, pod)
		for _, path := range []string{"/api/v1/pods?resourceVersion=0", "/api/v1/pods", "/api/v1/namespaces/default/pods/a?resourceVersion=0", "/api/v1/namespaces/default/pods/a"} {
			for agent, whole := range map[string]bool{"lean/1": false, "kubectl/1": true} {
				if !whole || strings.Contains(path, "=0") { // else the upstream answers, which has nothing to say here
					_, body, _ := b.do("GET "+path, "User-Agent: "+agent)
					if !strings.Contains(body, `"a"`) || strings.Contains(body, "managedFields") != whole {
						t.Errorf("%s of %s: %s", path, agent, body)
					}
				}
			}
		}
	})
}
