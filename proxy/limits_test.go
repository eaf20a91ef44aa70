package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

func TestOneUserCannotTakeAllSlots(t *testing.T) {
	for name, line := range map[string]string{
		"short": "POST /api/v1/namespaces/default/pods",
		"long":  "GET /api/v1/namespaces/default/pods/a/log?follow=true",
	} {
		t.Run(name, func(t *testing.T) {
			b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.InFlight, o.Policy.Limits.LongRunning = 8, 8 })
			serve := func(user string) *api.Response {
				r := request(line)
				r.Header.Set("Authorization", "Bearer "+user)
				return b.gateway.Serve(t.Context(), r)
			}
			var held []*api.Response
			for range 20 {
				if resp := serve("greedy"); resp.Status != 429 {
					held = append(held, resp)
				}
			}
			if len(held) != 6 {
				t.Errorf("one user holds %d of 8 places, want 6", len(held))
			}
			modest := serve("modest")
			if modest.Status == 429 {
				t.Error("another user is refused")
			}
			for _, resp := range append(held, modest) {
				resp.Done(0, nil)
			}
			if n, m := b.gateway.slots.inFlight.InUse(), b.gateway.slots.longRunning.InUse(); n != 0 || m != 0 {
				t.Errorf("%d short and %d long places are not given back", n, m)
			}
		})
	}
}

// TestLargeSelectorsOfOneUserAreBounded: watches keep their selectors for hours, and 20,000 of 60
// KiB each would be gigabytes. Watches by the deprecated paths are authorized without their
// selectors and keep them all the same.
func TestLargeSelectorsOfOneUserAreBounded(t *testing.T) {
	paths := []string{"/api/v1/pods?watch=1&", "/api/v1/watch/pods?"}
	for _, path := range paths[:soak.Cases(1, 2)] {
		t.Run(path, func(t *testing.T) { largeSelectorsAreBounded(t, path) })
	}
}

func largeSelectorsAreBounded(t *testing.T, path string) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.LongRunning = 2000 })
	g := b.gateway
	var held []*api.Response
	watch := func(user, selector string) int {
		r := request("GET " + path + "resourceVersion=1&labelSelector=" + selector)
		r.Header.Set("Authorization", "Bearer "+user)
		resp := g.Serve(t.Context(), r)
		if resp.Status != 429 {
			held = append(held, resp)
		}
		return resp.Status
	}
	var terms []string
	for i := range 99 {
		terms = append(terms, fmt.Sprintf("%s.%d/a=%060d", strings.Repeat("x", 240), i, i))
	}
	large := strings.Join(terms, ",")
	for watch("greedy", large) != 429 {
		if len(held) > 1000 {
			t.Fatal("no bound")
		}
	}
	if n, most := g.slots.longRequestBytes.InUse(), int64(maxLongRequestBytes/4*3); n > most {
		t.Errorf("one user keeps %d bytes, %d at most", n, most)
	}
	if status := watch("greedy", "app=web"); status == 429 {
		t.Error("an ordinary watch of the same user is refused")
	}
	if status := watch("modest", large); status == 429 {
		t.Error("another user is refused")
	}
	for _, resp := range held {
		resp.Done(0, nil)
	}
	if n, m := g.slots.longRequestBytes.InUse(), g.slots.longRunning.InUse(); n != 0 || m != 0 {
		t.Errorf("%d bytes and %d places are not given back", n, m)
	}
}

// TestPanicReleasesItsSlots: a request that panics returns its slots. The transport contains the
// panic of the handler, and nothing tells the handler then.
func TestPanicReleasesItsSlots(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.InFlight, o.Policy.Limits.LongRunning = 4, 4 })
	b.upstream.response = func(*api.Request) *api.Response { panic("upstream") }
	for _, line := range []string{"GET /apis", "GET /api/v1/namespaces/default/pods/a/log?follow=true", "GET /api/v1/pods?watch=1&resourceVersion=1&fieldSelector=x"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic was not passed on", line)
				}
			}()
			b.gateway.Serve(t.Context(), request(line))
		}()
	}
	g := b.gateway
	if n, m, u := g.slots.inFlight.InUse(), g.slots.longRunning.InUse(), g.slots.unidentified.InUse(); n != 0 || m != 0 || u != 0 {
		t.Errorf("%d short, %d long and %d unidentified places are not given back", n, m, u)
	}
}

func TestPanicOfResumedWatchReleasesItsSlots(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.Resumed = 2 })
	b.upstream.response = func(*api.Request) *api.Response { panic("upstream") }
	b.source.Bump(10)
	b.source.NoTimeouts()
	func() {
		defer func() { _ = recover() }()
		b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=true&resourceVersion=50"))
	}()
	g := b.gateway
	if n, m := g.slots.resumed.InUse(), g.slots.longRunning.InUse(); n != 0 || m != 0 {
		t.Errorf("%d resumed and %d long places are not given back", n, m)
	}
}

// TestOneUserCannotResumeAllWatches: a user who watches from before the cache's history leaves
// slots for other users who have to.
func TestOneUserCannotResumeAllWatches(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.Resumed = 4 })
	b.source.Bump(10)
	b.source.NoTimeouts()
	watch := func(user string) *api.Response {
		return b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=true&resourceVersion=50", "Authorization: Bearer "+user))
	}
	var held []*api.Response
	for range 8 {
		held = append(held, watch("greedy"))
	}
	if n := b.upstream.count(); n != 3 {
		t.Errorf("one user resumes %d watches of 4, want 3", n)
	}
	held = append(held, watch("modest"))
	if n := b.upstream.count(); n != 4 {
		t.Errorf("%d watches are resumed, want another user's besides", n)
	}
	for _, resp := range held {
		if resp.Stream != nil {
			resp.Stream.Stop()
		}
		resp.Done(0, nil)
	}
	if n := b.gateway.slots.resumed.InUse(); n != 0 {
		t.Errorf("%d places are not given back", n)
	}
}

// TestUnidentifiedRequestsHaveTheirOwnSlots: a client that is not identified yet waits for the
// upstream's review, and takes no slot of the identified clients.
func TestUnidentifiedRequestsHaveTheirOwnSlots(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.InFlight = 4 })
	g := b.gateway
	for range 4 {
		if !g.slots.unidentified.Acquire() {
			t.Fatal("no place")
		}
	}
	if status, _, h := b.do("GET /apis"); status != 429 || h.Get("Retry-After") != "1" {
		t.Errorf("over the limit of the unidentified: %d %v", status, h)
	}
	if n := g.slots.inFlight.InUse(); n != 0 {
		t.Errorf("they take %d places of the others", n)
	}
	g.slots.unidentified.Release()
	if status, _, _ := b.do("GET /apis"); status != 200 {
		t.Errorf("below it: %d", status)
	}
}

// stuckReviewer never answers who may impersonate whom.
type stuckReviewer struct{ accessReviewer }

func (s stuckReviewer) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	if r.Spec.ResourceAttributes != nil && r.Spec.ResourceAttributes.Verb == "impersonate" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.accessReviewer.Create(ctx, r, o)
}

// TestImpersonatorCannotTakeAllSlots: the gateway reviews as many users as a client names to
// impersonate. The client waits for the reviews in slots of its own.
func TestImpersonatorCannotTakeAllSlots(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Limits.InFlight = 8
			o.Authorizer = authz.New(authz.Options{AccessReviewer: stuckReviewer{accessReviewer{&fakeUpstream{}}}})
		})
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				r := request("GET /apis", "Authorization: Bearer greedy", fmt.Sprint("Impersonate-User: u", i))
				b.gateway.Serve(ctx, r).Done(0, nil)
			})
		}
		synctest.Wait()
		if status, _, _ := b.do("GET /apis", "Authorization: Bearer modest"); status != 200 {
			t.Errorf("another user: %d", status)
		}
		leave()
		wg.Wait()
		if n, m := b.gateway.slots.inFlight.InUse(), b.gateway.slots.unidentified.InUse(); n != 0 || m != 0 {
			t.Errorf("%d short and %d unidentified places are not given back", n, m)
		}
	})
}

// attributed remembers whose a request is said to be.
type attributed []string

func (a *attributed) AttributeTo(user string) { *a = append(*a, user) }

// TestAttributed: the transport learns whose a request is, whoever its sender acts as.
func TestAttributed(t *testing.T) {
	b := newGatewayBench(t, nil)
	for header, want := range map[string]string{"": "[admin]", "Impersonate-User: other": "[admin]", "Authorization: Bearer bad": "[]"} {
		r, got := request("GET /api/v1/pods?resourceVersion=0"), &attributed{}
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
		r.Attributor = got
		b.gateway.Serve(t.Context(), r).Done(0, nil)
		if fmt.Sprint(*got) != want {
			t.Errorf("%s: %v, want %s", header, *got, want)
		}
	}
}
