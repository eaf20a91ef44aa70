package proxy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

// revalidateBench is a gatewayBench before a source that lists references.
func revalidateBench(t *testing.T) *gatewayBench {
	source := cachetest.VersionLister{Source: cachetest.New(cachetest.PodResource())}
	b := newGatewayBench(t, func(o *Options) {
		manager, err := cache.NewManager(cache.Options{Source: source, Logger: o.Logger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(manager.Close)
		o.Manager = manager
		o.Resources = discovery.NewResources(podDiscovery(), defaultPrinters{}, manager, o.Logger, discovery.Options{})
	})
	b.source = source.Source
	return b
}

// TestStrictListsAreRevalidated: a list that is asked for again and again comes from the cache once the upstream has
// named what there is, and every doubt sends it upstream.
func TestStrictListsAreRevalidated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := revalidateBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		read := func(line, want string, header ...string) {
			t.Helper()
			status, body, _ := b.do(line, header...)
			if status != 200 {
				t.Errorf("%s: %d %.200s", line, status, body)
			}
			if want == "upstream" {
				if body != "upstream" {
					t.Errorf("%s %v: from the cache: %.100s", line, header, body)
				}
			} else if body == "upstream" || names(t, body) != want {
				t.Errorf("%s %v: %.200s, want %s", line, header, body, want)
			}
		}
		read("GET /api/v1/pods", "upstream")
		read("GET /api/v1/pods", "upstream") // starts the collection, and does not wait for it
		synctest.Wait()
		read("GET /api/v1/pods", "a")
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		b.source.Bump(3)
		read("GET /api/v1/pods", "a b")
		read("GET /api/v1/namespaces/default/pods?limit=1", "a")
		read("GET /api/v1/namespaces/default/pods/a", "upstream")

		for _, accept := range []string{
			"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", // costs the upstream the same
			"application/vnd.kubernetes.protobuf",                              // the other collection, for the first time
		} {
			read("GET /api/v1/pods", "upstream", "Accept: "+accept)
		}
		read("GET /api/v1/pods?includeObject=None", "upstream", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
		if _, body, _ := b.do("GET /api/v1/pods", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(body, `"kind":"Table"`) {
			t.Errorf("table: %.200s", body)
		}

		b.source.Hold()
		b.source.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
		began := time.Now()
		read("GET /api/v1/pods", "upstream")
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("waited %v for a feed that does not come", took)
		}
		b.source.Release()
		b.source.SetDown(true)
		read("GET /api/v1/pods", "upstream")
	})
}

// TestRevalidatedListsArePermitted: the upstream is asked as the gateway, so the client has to be permitted before.
func TestRevalidatedListsArePermitted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := revalidateBench(t)
		b.upstream.allowed = func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.User == "admin" }
		for range 3 {
			b.do("GET /api/v1/pods")
			synctest.Wait()
		}
		b.source.Calls()
		for _, line := range []string{"GET /api/v1/pods", "GET /api/v1/pods?limit=1", "GET /api/v1/namespaces/default/pods"} {
			if status, body, _ := b.do(line, "Authorization: Bearer jane"); status != 403 {
				t.Errorf("%s: %d %s", line, status, body)
			}
		}
		if calls := b.source.Calls(); len(calls) > 0 {
			t.Errorf("asked the upstream for somebody without permission: %v", calls)
		}
	})
}
