package proxy

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// budgetBench is a gateway before a synced collection of pods, with rules.
func budgetBench(t *testing.T, rules ...policy.Rule) *gatewayBench {
	t.Helper()
	b := newGatewayBench(t, func(o *Options) { o.Policy.Rules, o.Registerer = rules, prometheus.NewRegistry() })
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	b.count("GET /api/v1/pods?resourceVersion=0", "Authorization: Bearer somebody", "User-Agent: other")
	return b
}

// isOver reports whether an answer says that a budget is spent, and when to come back.
func isOver(t *testing.T, resp *api.Response) bool {
	t.Helper()
	if resp.Status != 429 {
		return false
	}
	retry, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || retry < 1 || retry > 60 || !strings.Contains(string(resp.Body), "TooManyRequests") || !strings.Contains(string(resp.Body), "rules[0] of kubeweir") {
		t.Errorf("Retry-After %q: %s", resp.Header.Get("Retry-After"), resp.Body)
	}
	return true
}

const podsFromCache, podsMostRecent, aVersion = "GET /api/v1/pods?resourceVersion=0", "GET /api/v1/pods", "GET /version"

// TestBudgetRejects: who has caused as many requests as the rule allows gets no more of them, but what the cache
// answers; a second later some again. Others go on.
func TestBudgetRejects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := budgetBench(t, policy.Rule{Match: policy.Match{UserAgents: []string{"k9s*"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 2}})
		k9s := []string{"User-Agent: k9s/1", "Authorization: Bearer jane"}
		do := func(line string, more ...string) *api.Response { return b.count(line, append(more, k9s...)...) }

		if resp := do(podsFromCache); resp.Status != 200 { // a TokenReview, a SubjectAccessReview
			t.Fatalf("%d %s", resp.Status, resp.Body)
		}
		do("GET /api/v1/pods?watch=1&resourceVersion=0").Stream.Stop() // a SubjectAccessReview
		granted := 0
		for range 100 {
			if !isOver(t, do(aVersion)) {
				granted++
			}
		}
		if granted != 17 { // of 20 in ten seconds
			t.Errorf("%d were granted", granted)
		}
		sent := b.upstream.count()
		for _, line := range []string{aVersion, podsMostRecent, "GET /api/v1/namespaces/default/pods/a", "DELETE /api/v1/namespaces/default/pods/a",
			"GET /api/v1/pods?watch=1", "POST /api/v1/namespaces/default/pods/a/exec", "GET /api/v1/namespaces/default/pods/a/log?follow=true",
			"GET //api/v1/pods", "HEAD /api/v1/pods", "PUT /api/v1/unknowns/x", "POST " + accessReviews} {
			if resp := do(line); !isOver(t, resp) {
				t.Errorf("%s: %d", line, resp.Status)
			}
		}
		for _, line := range []string{podsFromCache, podsFromCache + "&limit=1", "GET /api/v1/pods?watch=1&resourceVersion=0"} {
			resp := do(line)
			if resp.Status != 200 || resp.Header.Has("Age") {
				t.Errorf("%s: %d %s", line, resp.Status, resp.Body)
			}
			if resp.Stream != nil {
				resp.Stream.Stop()
			}
		}
		if made := b.upstream.count() - sent; made != 0 {
			t.Errorf("%d requests were made over the budget", made)
		}
		for _, other := range [][]string{{"User-Agent: kubectl", "Authorization: Bearer jane"}, {"User-Agent: k9s/1", "Authorization: Bearer joe"}} {
			if resp := b.count(aVersion, other...); resp.Status != 200 {
				t.Errorf("%v: %d %s", other, resp.Status, resp.Body)
			}
		}
		time.Sleep(time.Second)
		if a, b, c := do(aVersion), do(aVersion), do(aVersion); a.Status != 200 || b.Status != 200 || !isOver(t, c) {
			t.Errorf("a second later: %d %d %d", a.Status, b.Status, c.Status)
		}
		if s := b.gateway.Budgets(); len(s) != 1 || s[0].Rule != "rules[0]" || s[0].Who != "userAgents: k9s*" || s[0].RequestsPerSecond != 2 || s[0].Rejected != 95 || s[0].Users != 2 {
			t.Errorf("%+v", s)
		}
		if jane := b.rowOf("k9s/1"); jane.Rejected != 95 {
			t.Errorf("%+v", jane)
		}
	})
}

// TestBudgetOfUnknownPermission: over the budget nobody finds out what they may do, and so is neither let in nor told
// that they may not.
func TestBudgetOfUnknownPermission(t *testing.T) {
	for _, over := range []policy.OverBudget{policy.OverBudgetReject, policy.OverBudgetCached} {
		bubble.Test(t, func(t *testing.T) {
			b := budgetBench(t, policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1, OverBudget: over}})
			reviews := 0
			b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
				reviews++
				return r.ResourceAttributes.Verb != "watch" && r.ResourceAttributes.Verb != "impersonate"
			}
			jane := "Authorization: Bearer jane"
			b.count(podsFromCache, jane)
			b.count("GET /api/v1/pods?watch=1&resourceVersion=0", jane)
			for range 30 {
				b.count(aVersion, jane)
			}
			before := reviews
			for line, want := range map[string]int{
				podsFromCache: 200, // remembered: allowed
				"GET /api/v1/pods?watch=1&resourceVersion=0":                            403, // remembered: not allowed
				"GET /api/v1/namespaces/x/pods?resourceVersion=0":                       429,
				"GET /api/v1/namespaces/default/pods/a?resourceVersion=0":               429,
				"GET /api/v1/namespaces/x/pods?watch=1&resourceVersion=0":               429,
				"GET /api/v1/namespaces/default/pods?labelSelector=a&resourceVersion=0": 429,
			} {
				if resp := b.count(line, jane); resp.Status != want {
					t.Errorf("%s, %s: %d %s", over, line, resp.Status, resp.Body)
				}
			}
			if resp := b.count(podsFromCache, jane, "Impersonate-User: joe"); !isOver(t, resp) {
				t.Errorf("as joe: %d %s", resp.Status, resp.Body)
			}
			if reviews != before {
				t.Errorf("%d reviews over the budget", reviews-before)
			}
			// Revoked while over the budget: what was remembered counts for its seconds and no longer.
			b.upstream.allowed = func(*authorizationv1.SubjectAccessReviewSpec) bool { return false }
			time.Sleep(time.Minute)
			if resp := b.count(podsFromCache, jane); resp.Status != 403 {
				t.Errorf("revoked: %d", resp.Status)
			}
		})
	}
}

// TestOverBudgetReadsAreServedFromCache: with overBudget cached a most-recent read is answered with what there is, and its age;
// nothing else is.
func TestOverBudgetReadsAreServedFromCache(t *testing.T) {
	for _, mode := range []policy.Mode{policy.ModeStrict, policy.ModeSession} {
		bubble.Test(t, func(t *testing.T) {
			b := budgetBench(t, policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1, OverBudget: policy.OverBudgetCached, Mode: mode}})
			jane := "Authorization: Bearer jane"
			for _, line := range []string{podsFromCache, "GET /api/v1/namespaces/default/pods/a?resourceVersion=0", podsFromCache + "&watch=1"} {
				if resp := b.count(line, jane); resp.Stream != nil {
					resp.Stream.Stop()
				}
			}
			for range 30 {
				b.count(aVersion, jane)
			}
			sent := b.upstream.count()
			for _, line := range []string{podsMostRecent, podsMostRecent + "?limit=1", "GET /api/v1/namespaces/default/pods/a"} {
				resp := b.count(line, jane)
				_, err := strconv.Atoi(resp.Header.Get("Age"))
				if stale := err == nil && strings.HasPrefix(resp.Header.Get("Warning"), "110 "); resp.Status != 200 || stale != (mode == policy.ModeStrict) {
					t.Errorf("%s, %s: %d %v", mode, line, resp.Status, resp.Header)
				}
			}
			for _, header := range [][]string{{jane}, append([]string{jane}, socketHeader...)} {
				resp := b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=1", header...))
				if resp.Stream == nil || resp.Header.Has("Age") != (mode == policy.ModeStrict) {
					t.Errorf("%s: a watch: %d %v", mode, resp.Status, resp.Header)
					continue
				}
				stop(resp)
			}
			for _, line := range []string{"DELETE /api/v1/namespaces/default/pods/a", "GET /apis/apps/v1/deployments", aVersion} {
				if resp := b.count(line, jane); !isOver(t, resp) {
					t.Errorf("%s: %d", line, resp.Status)
				}
			}
			if b.upstream.count() != sent {
				t.Error("the upstream was asked")
			}
			if s := b.gateway.Budgets(); mode == policy.ModeStrict && s[0].RespondedStale != 5 || s[0].Rejected < 3 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestBudgetOfBytes: bytes are a debt, of answers and of what goes on.
func TestBudgetOfBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := budgetBench(t, policy.Rule{Match: policy.Match{Groups: []string{"system:authenticated"}}, Settings: policy.Settings{UpstreamBytesPerSecond: 1000}})
		b.startCounting()
		jane := "Authorization: Bearer jane"
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Body: make([]byte, 107_000)} // beside a review of two thousand
		}
		if resp := b.count(aVersion, jane); resp.Status != 200 {
			t.Fatal(resp.Status)
		}
		waited := 0
		for ; isOver(t, b.count(aVersion, jane)); waited++ {
			time.Sleep(time.Second)
		}
		if waited < 95 || waited > 130 { // besides reviews of the token, one in ten seconds
			t.Errorf("99,000 bytes at 1,000 a second were paid off in %d s", waited)
		}
		time.Sleep(10 * time.Minute)
		// A followed log, which brings more than that, ends; one that brings less goes on.
		for size, ends := range map[int]bool{5000: true, 100: false} {
			joe := fmt.Sprint("Authorization: Bearer log-", size)
			b.upstream.response = func(*api.Request) *api.Response {
				return &api.Response{Status: 200, Stream: &tickingStream{size: size}}
			}
			resp := b.count("GET /api/v1/namespaces/default/pods/a/log?follow=true", joe)
			w := &countingWriter{}
			resp.Stream.Start(w)
			time.Sleep(30 * time.Second)
			if _, closed := w.state(); closed != ends {
				t.Errorf("%d bytes a second: ended %t", size, closed)
			}
			if over := isOver(t, b.count(aVersion, joe)); over != ends {
				t.Errorf("%d bytes a second: over the budget %t", size, over)
			}
			resp.Stream.Stop()
		}
	})
}

// tickingStream sends each second.
type tickingStream struct {
	size int
	stop chan struct{}
}

func (s *tickingStream) Start(w api.StreamWriter) {
	s.stop = make(chan struct{})
	go func() {
		for {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Second):
				_ = w.WriteFrames([][]byte{make([]byte, s.size)})
			}
		}
	}()
}

func (s *tickingStream) Stop() { close(s.stop) }

// TestBudgetOfUpgrades: so are those of exec and port-forward.
func TestBudgetOfUpgrades(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := budgetBench(t, policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{UpstreamBytesPerSecond: 1000}})
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 101, Upgrade: func(conn net.Conn) { _, _ = conn.Read(make([]byte, 100_000)) }}
		}
		const exec, jane = "POST /api/v1/namespaces/default/pods/a/exec", "Authorization: Bearer jane"
		resp := b.gateway.Serve(t.Context(), request(exec, jane, "Upgrade: SPDY/3.1"))
		here, there := net.Pipe()
		go func() { _, _ = here.Write(make([]byte, 100_000)) }()
		resp.Upgrade(there)
		resp.Done(0, nil)
		if resp := b.count(aVersion, jane); !isOver(t, resp) {
			t.Errorf("%d", resp.Status)
		}
	})
}

// TestBudgetOfSender: who sends pays, whomever they act as, and however they write the path.
func TestBudgetOfSender(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := budgetBench(t, policy.Rule{Match: policy.Match{Users: []string{"jane"}, Resources: []string{"secrets"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 1}})
		jane := "Authorization: Bearer jane"
		secret := func(header ...string) *api.Response {
			return b.count("GET /api/v1/namespaces/default/secrets/a", header...)
		}
		for i := range 30 {
			secret(jane, fmt.Sprint("Impersonate-User: user-", i))
		}
		if resp := secret(jane); !isOver(t, resp) {
			t.Errorf("as herself: %d", resp.Status)
		}
		for _, line := range []string{"GET /api/v1/namespaces/default//secrets/a", "GET /api/v1/namespaces/default/./secrets/a"} {
			if resp := b.count(line, jane); !isOver(t, resp) {
				t.Errorf("%s: %d", line, resp.Status)
			}
		}
		if resp := secret("Authorization: Bearer joe", "Impersonate-User: jane"); resp.Status != 200 {
			t.Errorf("joe as jane: %d", resp.Status)
		}
		if resp := b.count(aVersion, jane); resp.Status != 200 {
			t.Errorf("of another resource: %d", resp.Status)
		}
	})
}

// TestBlockRule: a rule can block, and except from that.
func TestBlockRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := budgetBench(t,
			policy.Rule{Match: policy.Match{Users: []string{"admin"}}, Settings: policy.Settings{Block: policy.No}},
			policy.Rule{Match: policy.Match{UserAgents: []string{"k9s*"}}, Settings: policy.Settings{Block: policy.Yes}})
		for who, want := range map[string]int{"admin k9s/1": 200, "jane k9s/1": 429, "jane kubectl": 200} {
			user, agent, _ := strings.Cut(who, " ")
			sent := b.upstream.count()
			resp := b.count(aVersion, "Authorization: Bearer "+user, "User-Agent: "+agent)
			if resp.Status != want || want == 429 && (resp.Header.Get("Retry-After") != "60" || b.upstream.count() != sent) {
				t.Errorf("%s: %d %s", who, resp.Status, resp.Body)
			}
		}
	})
}

// TestBudgetOfLongBodies: a forwarded body is charged while it is written, and once.
func TestBudgetOfLongBodies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const size = 10 << 20
		b := budgetBench(t, policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{UpstreamBytesPerSecond: 100 << 10}})
		const jane = "Authorization: Bearer jane"
		over, began := time.Duration(0), time.Now()
		body := &slowBody{step: 256 << 10, size: size, each: func() {
			if over == 0 && isOver(t, b.count(aVersion, jane)) {
				over = time.Since(began)
			}
		}}
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, BodyTo: body, Length: size}
		}
		resp := b.gateway.Serve(t.Context(), request(aVersion, jane))
		b.upstream.response = nil
		n, err := resp.BodyTo.WriteTo(io.Discard) // a second for each step
		if n != size || err != nil || over == 0 || over > 15*time.Second {
			t.Errorf("%d bytes, %v, over the budget after %v", n, err, over)
		}
		resp.Done(n, nil)
		time.Sleep(100 * time.Second)
		bytes := b.gateway.policy.Load().Budgets()[0].Bytes
		if wait := bytes.Take("jane", 0); wait > 0 {
			t.Errorf("charged twice: %v to wait", wait)
		}
	})
}

// slowBody writes a step each second.
type slowBody struct {
	step, size int
	each       func()
}

func (s *slowBody) WriteTo(w io.Writer) (n int64, err error) {
	for int(n) < s.size && err == nil {
		time.Sleep(time.Second)
		var m int
		m, err = w.Write(make([]byte, s.step))
		n += int64(m)
		s.each()
	}
	return n, err
}
