package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// immediateBench is a gatewayBench before a source that tells its version at once.
func immediateBench(t *testing.T, change func(*Options)) (*gatewayBench, *cachetest.ImmediateSource) {
	source := &cachetest.ImmediateSource{}
	b := newGatewayBench(t, func(o *Options) {
		manager, err := cache.NewManager(cache.Options{Source: source, Logger: o.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(manager.Close)
		o.Manager = manager
		o.Resources = discovery.NewResources(podDiscovery(), defaultPrinters{}, manager, o.Logger, discovery.Options{})
		if change != nil {
			change(o)
		}
	})
	source.Source = b.source
	return b, source
}

// TestImmediateReads: with a source in this process strict reads are the cache's.
func TestImmediateReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, source := immediateBench(t, nil)
		read := func(line, want string) {
			t.Helper()
			before := b.upstream.count()
			status, body, _ := b.do(line)
			if status != 200 || b.upstream.count() != before || names(t, body) != want {
				t.Errorf("%s: %d %.200s, %d forwarded", line, status, body, b.upstream.count()-before)
			}
		}
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		read("GET /api/v1/pods", "a")
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		read("GET /api/v1/pods", "a b")
		b.source.Bump(7)
		read("GET /api/v1/pods?resourceVersion=109&resourceVersionMatch=NotOlderThan", "a b")
		if status, body, _ := b.do("GET /api/v1/namespaces/default/pods/c"); status != 404 || b.upstream.count() != 0 {
			t.Errorf("%d %s", status, body)
		}

		// A feed that does not follow in time is not waited for longer.
		b.source.Hold()
		b.source.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
		if _, body, _ := b.do("GET /api/v1/pods"); body != "upstream" {
			t.Errorf("from behind: %s", body)
		}
		b.source.Release()
		synctest.Wait()

		// If the state is not kept in this process, the gateway requests it from the process that
		// keeps it.
		source.Deaf.Store(true)
		if _, body, _ := b.do("GET /api/v1/pods"); body != "upstream" {
			t.Errorf("from elsewhere: %s", body)
		}
	})
}

// decider allows what allow does.
type decider func(u user.Info, a authz.Attributes) bool

func (d decider) Decide(_ context.Context, u user.Info, a authz.Attributes) (bool, string, error) {
	if a.Name == "broken" {
		return true, "", errors.New("broken")
	}
	return d(u, a), "", nil
}

// TestInProcessHealth: the upstream serves the health checks, to whomever and however many others it
// serves.
func TestInProcessHealth(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, _ := immediateBench(t, func(o *Options) {
			o.InProcess, o.Blocked = true, policy.NewBlocked(nil)
			o.Policy.Limits.InFlight = 1
			o.Authorizer = authz.New(authz.Options{TrustedByUpstream: true, Decider: decider(func(user.Info, authz.Attributes) bool { return false })})
		})
		b.gateway.slots.inFlight.Acquire("jane", 1)
		if err := b.gateway.Blocked.Block("probe*", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for i, path := range []string{"/livez", "/readyz/etcd"} {
			b.do("GET "+path, "Authorization: ", "User-Agent: probe/1")
			if f := b.upstream.forwarded; len(f) != i+1 || f[i].request.Path != path || f[i].as.User.GetName() != "system:anonymous" {
				t.Errorf("%s: forwarded %+v", path, f)
			}
		}
	})
}

// TestInProcess: an upstream in this process is told who asks, not shown it, and
// decides about impersonation; permissions are not remembered.
func TestInProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		allowed := true
		b, source := immediateBench(t, func(o *Options) {
			o.InProcess = true
			o.Authorizer = authz.New(authz.Options{
				TrustedByUpstream: true,
				Decider:           decider(func(_ user.Info, a authz.Attributes) bool { return allowed && a.Verb != "impersonate" }),
			})
		})
		b.upstream.allowed = func(*authorizationv1.SubjectAccessReviewSpec) bool { panic("reviewed") }
		b.do("POST /api/v1/namespaces/default/pods", "Authorization: Bearer jane")
		b.do("POST /api/v1/namespaces/default/pods", "Authorization: ")
		b.do("GET /api/v1/namespaces/default/pods", "Authorization: Bearer jane", "Impersonate-User: bob", "Impersonate-Group: g")
		for i, want := range []struct{ user, impersonated string }{{"jane", ""}, {"system:anonymous", ""}, {"jane", "bob"}} {
			f := b.upstream.forwarded[i]
			if f.as.As != upstream.AsClient || f.as.User == nil || f.as.User.GetName() != want.user || !f.as.KeepImpersonation ||
				f.request.Header.Has("Authorization") || f.request.Header.Get("Impersonate-User") != want.impersonated {
				t.Errorf("request %d: %+v with %v", i, f.as, f.request.Header)
			}
		}
		for range 2 {
			for _, line := range []string{"GET /api/v1/pods", "GET /api/v1/pods?resourceVersion=0"} {
				want := 200
				if !allowed {
					want = 403
				}
				if status, body, _ := b.do(line); status != want {
					t.Errorf("%s: %d %s", line, status, body)
				}
			}
			allowed = !allowed
		}
		const failed = `Internal Server Error: "/api/v1/namespaces/default/pods/broken": `
		if status, body, _ := b.do("GET /api/v1/namespaces/default/pods/broken"); status != 500 || !strings.HasPrefix(string(body), failed) {
			t.Errorf("a decider that fails: %d %s", status, body)
		}
		if source.Requested.Load() != 1 {
			t.Errorf("asked %d times", source.Requested.Load())
		}
	})
}
