package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// reload replaces the policy by one that differs from the present one as change says.
func (b *gatewayBench) reload(change func(*Policy)) {
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
		b.answers(api.Response{Status: 201, Body: []byte("{}")})
		expect(write, 201)
		b.reload(func(p *Policy) { p.Rules = []Rule{{Match{Users: []string{"*"}}, Settings{ReadOnly: Yes}}} })
		expect(write, 403)
		b.reload(func(p *Policy) { p.Rules = []Rule{{Match{Users: []string{"*"}}, Settings{Block: Yes}}} })
		expect(podsFromCache, 429)
		b.reload(func(p *Policy) { p.Rules = nil })
		expect(write, 201)
		expect(podsFromCache, 200)
		b.reload(func(p *Policy) { p.Limits.InFlight = 1 })
		b.gateway.inFlight.Acquire("somebody", 1)
		expect(podsFromCache, 429)
		b.reload(func(p *Policy) { p.Limits.InFlight = 2 })
		expect(podsFromCache, 200)
	})
}

// TestSetPolicyEndsStreams: a watch ends, with nothing that was still due, if the new policy rejects it or serves it in
// another way, and goes on otherwise.
func TestSetPolicyEndsStreams(t *testing.T) {
	rule := func(s Settings) func(*Policy) {
		return func(p *Policy) { p.Rules = []Rule{{Match{Users: []string{"*"}}, s}} }
	}
	for name, test := range map[string]struct {
		change func(*Policy)
		ends   bool
	}{
		"the same":       {func(*Policy) {}, false},
		"session":        {rule(Settings{Mode: ModeSession}), false},
		"offline":        {func(p *Policy) { p.Offline = Offline{Allow: true, TTL: time.Hour} }, false},
		"limits":         {func(p *Policy) { p.Limits.LongRunning = 1 }, false},
		"request budget": {rule(Settings{UpstreamRequestsPerSecond: 5}), false},
		"read only":      {rule(Settings{ReadOnly: Yes}), false},
		"blocked":        {rule(Settings{Block: Yes}), true},
		"redacted":       {rule(Settings{Redacted: Yes}), true},
		"dropped":        {rule(Settings{DropManagedFields: Yes}), true},
		"visible":        {rule(Settings{VisibleLists: Yes}), true},
		"pace":           {func(p *Policy) { p.Pace = watch.Pace{Coalesce: time.Second} }, true},
		"byte budget":    {rule(Settings{UpstreamBytesPerSecond: 1 << 20}), true},
		"other clients": {func(p *Policy) {
			p.Rules = []Rule{{Match{UserAgents: []string{"k9s*"}}, Settings{Block: Yes, Redacted: Yes}}}
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
		b.reload(func(p *Policy) { p.Rules = []Rule{{Match{Users: []string{"*"}}, Settings{Redacted: Yes}}} })
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
		b.answers(api.Response{Status: 101, Upgrade: func(conn net.Conn) { _, _ = io.Copy(conn, conn) }})
		exec := b.gateway.Serve(t.Context(), request("POST /api/v1/namespaces/default/pods/a/exec", "Upgrade: SPDY/3.1"))
		here, there := net.Pipe()
		go exec.Upgrade(there)
		b.reload(func(p *Policy) { p.Rules = []Rule{{Match{Users: []string{"*"}}, Settings{ReadOnly: Yes}}} })
		time.Sleep(2 * time.Second)
		if _, err := here.Read(make([]byte, 1)); err == nil {
			t.Error("the session goes on")
		}
	})
}

// TestSetPolicyKeepsBudgets: what was spent stays spent while the budget is the same, wherever its rule stands.
func TestSetPolicyKeepsBudgets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		budget := Rule{Match{Users: []string{"*"}}, Settings{UpstreamRequestsPerSecond: 1}}
		b := budgetBench(t, budget)
		spend := func() (granted int) {
			for range 20 {
				if b.count(aVersion).Status != 429 {
					granted++
				}
			}
			return granted
		}
		if n := spend(); n == 0 || n == 20 {
			t.Fatalf("%d requests were granted", n)
		}
		b.reload(func(p *Policy) {
			p.Rules = []Rule{{Match{UserAgents: []string{"k9s*"}}, Settings{ReadOnly: Yes}}, budget}
		})
		if n := spend(); n > 0 {
			t.Errorf("%d requests were granted after the rule had moved", n)
		}
		if n := testutil.CollectAndCount(b.gateway.budgetMetrics.answers); n != 2 {
			t.Errorf("%d counters of one rule", n)
		}
		if states := b.gateway.Budgets(); len(states) != 1 || states[0].Rule != "rules[1]" || states[0].Refused == 0 {
			t.Errorf("%+v", states)
		}
		budget.Says.UpstreamRequestsPerSecond = 2
		b.reload(func(p *Policy) { p.Rules = []Rule{budget} })
		if n := spend(); n == 0 {
			t.Error("another budget begins with what the old one had spent")
		}
	})
}

// TestSetPolicyKeepsEachBudget: of rules that match the same clients, each budget goes on with its own.
func TestSetPolicyKeepsEachBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := Match{Users: []string{"*"}}
		b := budgetBench(t, Rule{all, Settings{UpstreamRequestsPerSecond: 5}}, Rule{all, Settings{UpstreamBytesPerSecond: 1 << 20}}, Rule{all, Settings{UpstreamBytesPerSecond: 1 << 21}})
		before := b.gateway.budgets()
		b.reload(func(p *Policy) { p.Limits.InFlight++ })
		for i, now := range b.gateway.budgets() {
			if !now.requests.same(before[i].requests) || !now.bytes.same(before[i].bytes) {
				t.Errorf("%s has another budget", now.name)
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
		b.reload(func(p *Policy) { p.Consistency = Consistency{Default: ModeSession, MaxStaleness: time.Minute} })
		go func() {
			time.Sleep(deletionWait / 2)
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
