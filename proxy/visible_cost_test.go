package proxy

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// counting lets a user list and watch in namespaces, and counts the reviews of each second.
func (b *visibleBench) counting(user string, in int) (perSecond func() (sum, most int)) {
	for i := range in {
		b.source.Create(rbac.GroupVersionResources()[1], binding(fmt.Sprintf("n%d", i), "view", rbacv1.Subject{Kind: rbacv1.UserKind, Name: user}))
	}
	counts := make(map[time.Time]int)
	b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
		if r.ResourceAttributes.Namespace != "" {
			counts[time.Now().Truncate(time.Second)]++
		}
		return r.User == user && r.ResourceAttributes.Namespace != "" && r.ResourceAttributes.Namespace != b.denied
	}
	b.changed()
	time.Sleep(2 * time.Second)
	return func() (sum, most int) {
		b.upstream.mu.Lock()
		defer b.upstream.mu.Unlock()
		for _, n := range counts {
			sum, most = sum+n, max(most, n)
		}
		clear(counts)
		return sum, most
	}
}

// follow runs what follows open watches until the test ends.
func (b *visibleBench) follow() (end func()) {
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.gateway.Revocation.Run(ctx)
	}()
	return func() { stop(); <-done }
}

// TestVisibleWatchesCost: however many watches of whatever selectors a user has, each namespace is reviewed once in a while,
// not all at a time, and none later than it is to be.
func TestVisibleWatchesCost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, func(o *Options) { o.Policy.Limits.LongRunning = 1000 })
		const in, minutes = 300, 4
		perSecond := b.counting("jane", in)
		defer b.follow()()
		var open []*visibleWatch
		for _, n := range []int{1, 20, 200} {
			for len(open) < n {
				line := "GET /api/v1/pods?watch=1"
				if len(open) > 0 {
					line += fmt.Sprintf("&labelSelector=n%%3D%d", len(open))
				}
				open = append(open, b.watch(line, asJane))
			}
			perSecond()
			time.Sleep(minutes * time.Minute)
			sum, most := perSecond()
			t.Logf("%d watches of %d namespaces: %d reviews in %d minutes, at most %d in a second", n, in, sum, minutes, most)
			if sum < minutes*in-in || sum > minutes*in*13/10 || most > in/4 {
				t.Error("that is not what it is to be")
			}
			for _, w := range open {
				if w.ended() {
					t.Fatalf("a watch has ended: %s", w.text())
				}
			}
		}
		b.upstream.mu.Lock()
		b.denied = "n7" // by another authorizer
		b.upstream.mu.Unlock()
		time.Sleep(time.Minute + 2*time.Second)
		for i, w := range open {
			if got := w.text(); !w.ended() || !strings.Contains(got, `"reason":"Expired"`) {
				t.Errorf("watch %d goes on: %s", i, got)
			}
			w.leave()
		}
	})
}

// TestVisibleWatchesPace: what open watches cost is bounded, also where a user has more namespaces than can be confirmed in
// time for a while.
func TestVisibleWatchesPace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		const in = 4000
		perSecond := b.counting("jane", in)
		defer b.follow()()
		w := b.watch("GET /api/v1/pods?watch=1", asJane)
		if sum, _ := perSecond(); sum != in {
			t.Errorf("%d reviews at the beginning", sum)
		}
		time.Sleep(5 * time.Minute)
		if sum, most := perSecond(); sum < 5*in || most > 400 || w.ended() {
			t.Errorf("%d reviews in 5 minutes, at most %d in a second; ended: %t", sum, most, w.ended())
		}
		w.leave()
	})
}

// TestVisibleSelectors: a namespace that may be listed whole is not asked about again with selectors; one that may be listed
// by selectors only is shown to those.
func TestVisibleSelectors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a", "b", "c")
		b.grant(jane, "a", "b", "c")
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
			b.reviews = append(b.reviews, *r)
			a := r.ResourceAttributes
			return a.Namespace == "a" || a.Namespace == "b" && a.LabelSelector != nil
		}
		time.Sleep(2 * time.Second)
		for _, c := range []struct {
			query, want string
			reviews     int
		}{
			{"", "a0", 3},
			{"&labelSelector=n", "a0 b0", 2}, // b and c
			{"&labelSelector=n", "a0 b0", 0},
			{"&fieldSelector=spec.nodeName%3Dnode", "a0", 2},
			{"&labelSelector=n&fieldSelector=metadata.namespace%3Da", "a0", 1}, // one alone is asked at once
			{"", "a0", 0},
		} {
			before := b.reviewed()
			status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0"+c.query, asJane)
			if status != 200 || names(t, body) != c.want {
				t.Errorf("%q: %d %s", c.query, status, body)
			}
			n := 0
			for _, r := range b.reviews[before:] {
				if r.ResourceAttributes.Namespace != "" {
					n++
				}
			}
			if n != c.reviews {
				t.Errorf("%q: %d reviews, want %d: %+v", c.query, n, c.reviews, b.reviews[before:])
			}
		}
		time.Sleep(4 * time.Second)
		b.do("GET /api/v1/pods?resourceVersion=0&labelSelector=n", asJane)
		before := b.reviewed()
		time.Sleep(6 * time.Second) // a was confirmed 10 s ago
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
			b.reviews = append(b.reviews, *r)
			return false
		}
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0&labelSelector=n", asJane); strings.Contains(body, `"a0"`) {
			t.Errorf("what is refused is shown: %d %s, after %d reviews", status, body, b.reviewed()-before)
		}
	})
}

// TestVisibleRemembered: a decision that a set takes over from another request is not believed for longer than that.
func TestVisibleRemembered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a", "b")
		b.grant(jane, "a", "b")
		time.Sleep(2 * time.Second)
		b.do("GET /api/v1/namespaces/a/pods?resourceVersion=0", asJane)
		time.Sleep(9 * time.Second)
		if _, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); names(t, body) != "a0 b0" {
			t.Error(body)
		}
		b.upstream.mu.Lock()
		b.denied = "a"
		b.upstream.mu.Unlock()
		time.Sleep(time.Second)
		if _, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); names(t, body) != "b0" {
			t.Errorf("shown for longer than a decision counts: %s", body)
		}
	})
}

// TestVisibleOthers: a user with many namespaces does not push out what is remembered of others.
func TestVisibleOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a")
		b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, "a")
		allowed := b.upstream.allowed
		b.counting("jane", 20_000)
		many := b.upstream.allowed
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
			if r.User == "joe" {
				return allowed(r)
			}
			return many(r)
		}
		asJoe, line := "Authorization: Bearer joe", "GET /api/v1/namespaces/a/pods?resourceVersion=0"
		b.do(line, asJoe)
		b.source.Create(cachetest.Pods, cachetest.Pod("n7/x", ""))
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 200 {
			t.Fatal(status, body)
		}
		before := b.reviewed()
		if b.do(line, asJoe); b.reviewed() != before {
			t.Error("what was decided about another user was forgotten")
		}
	})
}

// TestVisibleManyLists: who lists very many namespaces again and again does not have all of them reviewed each time.
func TestVisibleManyLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		const in = 10_000
		perSecond := b.counting("jane", in)
		b.source.Create(cachetest.Pods, cachetest.Pod("n7/x", ""))
		time.Sleep(time.Second)
		list := func(want int) {
			t.Helper()
			if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 200 || names(t, body) != "x" {
				t.Errorf("%d %s", status, body)
			}
			if sum, _ := perSecond(); sum != want {
				t.Errorf("%d reviews, want %d", sum, want)
			}
		}
		list(in)
		time.Sleep(49 * time.Second)
		list(0)
		time.Sleep(2 * time.Second)
		list(in)
	})
}

// slowReviewer takes a while for each review of a namespace.
type slowReviewer struct {
	authz.AccessReviewer
	takes time.Duration
}

func (s slowReviewer) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if r.Spec.ResourceAttributes.Namespace != "" {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.AccessReviewer.Create(ctx, r, o)
}

// newSlowBench is a visibleBench of reviews of namespaces that take a while.
func newSlowBench(t *testing.T, takes time.Duration, rules ...policy.Rule) *visibleBench {
	return newVisibleBench(t, func(o *Options) {
		o.Policy.Rules = append(o.Policy.Rules, rules...)
		upstream := o.Forwarder.(*fakeUpstream)
		o.Authorizer = authz.New(authz.Options{AccessReviewer: slowReviewer{accessReviewer{upstream}, takes}})
		o.Revocation = revocation.New(revocation.Options{Authorizer: o.Authorizer, Authenticator: o.Authenticator})
	})
}

// TestVisibleRevokedMeanwhile: what an RBAC object takes away ends watches in time, also while the namespaces that another
// gave are reviewed, be they the same user's or another's.
func TestVisibleRevokedMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSlowBench(t, 100*time.Millisecond)
		b.fill(1, "a", "b", "c")
		b.grant(jane, "a", "b")
		b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "eve"}, "a", "b")
		b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, "c")
		time.Sleep(2 * time.Second)
		defer b.follow()()
		open := map[string]*visibleWatch{
			"jane": b.watch("GET /api/v1/pods?watch=1&resourceVersion=0", asJane),
			"eve":  b.watch("GET /api/v1/pods?watch=1&resourceVersion=0", "Authorization: Bearer eve"),
			"joe":  b.watch("GET /api/v1/namespaces/c/pods?watch=1&resourceVersion=0", "Authorization: Bearer joe"),
		}
		many := make([]string, 2000)
		for i := range many {
			many[i] = fmt.Sprintf("n%d", i)
		}
		b.grant(jane, many...)
		time.Sleep(1500 * time.Millisecond) // the reviews of those have begun
		for user, namespace := range map[string]string{"jane": "b", "eve": "b", "joe": "c"} {
			b.revoke(user, namespace)
		}
		time.Sleep(2 * time.Second)
		for user, w := range open {
			if !w.ended() {
				t.Errorf("the watch of %s goes on", user)
			}
			w.leave()
		}
	})
}

// TestVisibleFairness: somebody whose many lists take many reviews does not keep others from theirs.
func TestVisibleFairness(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSlowBench(t, 100*time.Millisecond)
		allowed := make(map[string]bool) // namespaces of eve
		b.fill(1, "e0")
		for i := range 1000 {
			b.source.Create(rbac.GroupVersionResources()[1], binding(fmt.Sprintf("n%d", i), "view", jane))
		}
		for i := range 64 {
			allowed[fmt.Sprintf("e%d", i)] = true
		}
		for namespace := range maps.Keys(allowed) {
			b.source.Create(rbac.GroupVersionResources()[1], binding(namespace, "view", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "eve"}))
		}
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
			return r.User == "eve" && allowed[r.ResourceAttributes.Namespace] // jane is denied, so that each of her lists is reviewed
		}
		b.changed()
		time.Sleep(2 * time.Second)
		for i := range 40 {
			go b.do(fmt.Sprintf("GET /api/v1/pods?resourceVersion=0&labelSelector=n%%3D%d", i), asJane)
		}
		time.Sleep(5 * time.Second)
		began := time.Now()
		status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", "Authorization: Bearer eve")
		if took := time.Since(began); status != 200 || names(t, body) != "e00" || took > time.Second {
			t.Errorf("%d %s after %v", status, body, took)
		}
	})
}

// TestVisibleRejectedCost: namespaces that were refused are remembered, too, and count.
func TestVisibleRejectedCost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := newVisibleBench(t, func(o *Options) { o.Registerer = registry })
		const in = 2000
		b.counting("nobody", 0)
		for i := range in {
			b.source.Create(rbac.GroupVersionResources()[1], binding(fmt.Sprintf("n%d", i), "view", jane))
		}
		b.changed()
		time.Sleep(2 * time.Second)
		for i := range 3 {
			if status, body, _ := b.do(fmt.Sprintf("GET /api/v1/pods?resourceVersion=0&labelSelector=n%%3D%d", i), asJane); status != 403 {
				t.Errorf("%d %s", status, body)
			}
		}
		if got := visibleCost(t, registry); got < 4*in/2 {
			t.Errorf("4 sets of %d refused namespaces cost %v", in, got)
		}
	})
}

// visibleCost is what is remembered costs.
func visibleCost(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubeweir_authorization_visible_namespaces" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// TestVisibleSelectorsCost: long selectors count, too, of whoever sees nothing as well.
func TestVisibleSelectorsCost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := newVisibleBench(t, func(o *Options) { o.Registerer, o.VisibleNamespaces = registry, 40_000 })
		const sets, bytes = 20, 30 << 10
		for i := range sets {
			line := fmt.Sprintf("GET /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3D%d%s", i, strings.Repeat("n", bytes))
			if status, body, _ := b.do(line, asJane); status != 403 {
				t.Fatalf("%d %.200s", status, body)
			}
		}
		if got := visibleCost(t, registry); got < 10_000-2*bytes/64 || got > 10_000 {
			t.Errorf("%d sets of selectors of %d bytes cost %v, of at most 10,000", sets, bytes, got)
		}
	})
}

// TestVisibleGivenUp: reviews are paid for by who has caused them and not waited for all.
func TestVisibleGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSlowBench(t, 100*time.Millisecond, policy.Rule{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{UpstreamRequestsPerSecond: 10}})
		b.counting("jane", 1000)
		ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		resp := b.gateway.Serve(ctx, request("GET /api/v1/pods?resourceVersion=0", asJane))
		resp.Done(0, nil)
		if resp.Status < 400 {
			t.Errorf("%d %s", resp.Status, resp.Body)
		}
		if status, body, _ := b.do("GET /api/v1/namespaces/other/pods", asJane); status != 429 {
			t.Errorf("after hundreds of reviews there is something left of ten a second: %d %s", status, body)
		}
	})
}
