package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/proxy/upstream"
)

var (
	podsResource        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deploymentsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	metricsResource     = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1", Resource: "nodes"}
)

// fakeDiscovery serves pods, deployments and the resource of a server that may be
// down.
type fakeDiscovery struct {
	down      atomic.Bool // the aggregated server is
	broken    atomic.Bool // everything is
	requests  atomic.Int64
	reads     atomic.Int64
	unchanged atomic.Int64
	wait      chan struct{} // if not nil, each read of /api takes one
}

func (f *fakeDiscovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	switch {
	case f.broken.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/api" || r.URL.Path == "/apis":
		if r.URL.Path == "/api" {
			f.reads.Add(1)
			if f.wait != nil {
				<-f.wait
			}
		}
		f.serveAggregated(w, r)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (f *fakeDiscovery) serveAggregated(w http.ResponseWriter, r *http.Request) {
	list := apidiscoveryv2.APIGroupDiscoveryList{}
	if r.URL.Path == "/api" {
		list.Items = []apidiscoveryv2.APIGroupDiscovery{{Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{
			Resource: "pods", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get", "list", "watch"}, ResponseKind: &metav1.GroupVersionKind{Kind: "Pod"},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", Verbs: []string{"get"}, ResponseKind: &metav1.GroupVersionKind{Kind: "Pod"}}},
		}}}}}}
	} else {
		metrics := apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{{
			Resource: "nodes", Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"list"}, ResponseKind: &metav1.GroupVersionKind{Kind: "NodeMetrics"},
		}}}
		if f.down.Load() {
			metrics = apidiscoveryv2.APIVersionDiscovery{Version: "v1", Freshness: apidiscoveryv2.DiscoveryFreshnessStale}
		}
		list.Items = []apidiscoveryv2.APIGroupDiscovery{
			{ObjectMeta: metav1.ObjectMeta{Name: "apps"}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1", Resources: []apidiscoveryv2.APIResourceDiscovery{{
				Resource: "deployments", Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"create"}, ResponseKind: &metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
				Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "scale", Verbs: []string{"update"}, ResponseKind: &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}}},
			}}}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}, Versions: []apidiscoveryv2.APIVersionDiscovery{metrics}},
		}
	}
	etag := fmt.Sprintf("%q", fmt.Sprint(r.URL.Path, f.down.Load()))
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if r.Header.Get("If-None-Match") == etag {
		f.unchanged.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_ = json.NewEncoder(w).Encode(list)
}

// wantResources is what the documents say.
func wantResources() map[schema.GroupVersionResource]ServerResource {
	return map[schema.GroupVersionResource]ServerResource{
		podsResource: {
			GroupVersionResource: podsResource, Kind: "Pod", Namespaced: true, Verbs: []string{"get", "list", "watch"},
		},
		deploymentsResource: {
			GroupVersionResource: deploymentsResource, Kind: "Deployment", Namespaced: true, Verbs: []string{"create"},
		},
		metricsResource: {GroupVersionResource: metricsResource, Kind: "NodeMetrics", Verbs: []string{"list"}},
	}
}

// newClient returns a client of an upstream that h serves.
func newClient(t *testing.T, h http.Handler, compress bool) *upstream.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := upstream.New(upstream.Options{Config: &rest.Config{Host: s.URL}, Compress: compress})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// testCatalog is a Catalog that misses do not refresh, with readings min apart at least.
func testCatalog(c *upstream.Client, min time.Duration) *Catalog {
	d := NewCatalog(c)
	d.minPeriod, d.missPeriod = min, time.Hour
	return d
}

// testContext ends with the test, or when it takes too long.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// within returns what the channel has within 20 seconds.
func within[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

func TestCatalog(t *testing.T) {
	for _, compression := range []bool{false, true} {
		t.Run(fmt.Sprintf("compression=%v", compression), func(t *testing.T) {
			f := &fakeDiscovery{}
			d := testCatalog(newClient(t, f, compression), time.Nanosecond)
			check := func(when string) {
				t.Helper()
				if diff := cmp.Diff(wantResources(), d.known.Load().resources); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
			refresh := func() error { return d.Refresh(testContext(t)) }
			if err := refresh(); err != nil {
				t.Fatal(err)
			}
			check("first")
			r, ok := d.Lookup(podsResource)
			if !ok || !r.Supports("watch") || r.Supports("create") {
				t.Errorf("%+v, %v", r, ok)
			}
			f.down.Store(true) // the resources of a server that is away stay known
			for range 2 {
				if err := refresh(); err != nil {
					t.Fatal(err)
				}
				check("one server down")
			}
			f.broken.Store(true)
			if err := refresh(); err == nil {
				t.Error("no error while the upstream is away")
			}
			check("upstream down")
			if f.unchanged.Load() == 0 {
				t.Error("unchanged documents are sent anew")
			}
		})
	}
}

// TestCatalogOfOldServers: a server without the aggregated form is told apart from a broken one.
func TestCatalogOfOldServers(t *testing.T) {
	c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{Versions: []string{"v1"}})
	}), false)
	if err := testCatalog(c, time.Nanosecond).Refresh(testContext(t)); err == nil || !strings.Contains(err.Error(), "1.30") {
		t.Errorf("error %v", err)
	}
}

// TestRefreshIsNewer: a refresh never returns what was read before it was asked
// for, and many share one.
func TestRefreshIsNewer(t *testing.T) {
	f := &fakeDiscovery{wait: make(chan struct{})}
	c := newClient(t, f, false)
	d := testCatalog(c, time.Nanosecond)
	first := make(chan error, 1)
	go func() { first <- d.Refresh(testContext(t)) }()
	for f.reads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	later := make(chan error, 10)
	for range cap(later) {
		go func() { later <- d.Refresh(testContext(t)) }()
	}
	awaitRefreshes(t, 1+cap(later))
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := d.Refresh(ctx); err == nil {
		t.Error("a refresh that is cancelled succeeds")
	}
	select {
	case <-later:
		t.Error("a refresh returned before it was read")
	default:
	}
	f.wait <- struct{}{}
	if err := within(t, first, "the first refresh"); err != nil {
		t.Error(err)
	}
	go func() {
		for range cap(later) {
			select {
			case f.wait <- struct{}{}:
			case <-c.Background().Context.Done():
				return
			}
		}
	}()
	for range cap(later) {
		if err := within(t, later, "a later refresh"); err != nil {
			t.Error(err)
		}
	}
	if n := f.reads.Load(); n != 2 {
		t.Errorf("%d readings, want one for the first refresh and one for the others", n)
	}
	c.Close()
	if err := d.Refresh(testContext(t)); err == nil {
		t.Error("a refresh succeeds after Close")
	}
}

// awaitRefreshes waits until n goroutines wait for a reading.
func awaitRefreshes(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		waiting := 0
		for goroutine := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			head, _, _ := strings.Cut(goroutine, "\n")
			if strings.Contains(head, "[select") && strings.Contains(goroutine, "(*Catalog).Refresh(") {
				waiting++
			}
		}
		if waiting == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines wait for a reading, want %d", waiting, n)
		}
	}
}

func TestMissesLeadToFewReadings(t *testing.T) {
	f := &fakeDiscovery{}
	d := testCatalog(newClient(t, f, false), time.Nanosecond)
	if _, ok := d.Lookup(podsResource); ok {
		t.Error("found without reading")
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, ok := d.Lookup(podsResource); ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a miss leads to no reading")
		}
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		d.Lookup(schema.GroupVersionResource{Group: "no", Version: "v1", Resource: "such"})
	}
	if n := f.reads.Load(); n != 1 {
		t.Errorf("%d readings", n)
	}
}

func TestRunReadsAgain(t *testing.T) {
	f := &fakeDiscovery{}
	f.broken.Store(true)
	d := testCatalog(newClient(t, f, false), time.Millisecond)
	d.period = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	for f.requests.Load() < 3 { // it fails, and goes on
		time.Sleep(time.Millisecond)
	}
	f.broken.Store(false)
	for f.reads.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	within(t, done, "the end of Run")
	names := []string{}
	for _, r := range d.known.Load().resources {
		names = append(names, r.Resource)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"deployments", "nodes", "pods"}) {
		t.Errorf("%q", names)
	}
}

// TestRestoredCatalog: what an earlier process read counts until the upstream is read.
func TestRestoredCatalog(t *testing.T) {
	f := &fakeDiscovery{}
	c := newClient(t, f, false)
	first := NewCatalog(c)
	if docs := first.Documents(); !docs.At.IsZero() || first.Restore(&docs) || first.Read() {
		t.Errorf("before it is read: %+v", docs)
	}
	if err := first.Refresh(testContext(t)); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(first.Documents())
	if err != nil {
		t.Fatal(err)
	}
	var docs Documents
	if err := json.Unmarshal(content, &docs); err != nil {
		t.Fatal(err)
	}
	docs.At = time.Now().Add(-time.Hour)
	again := NewCatalog(c)
	if !again.Restore(&docs) || again.Read() || !again.Documents().At.Equal(docs.At) {
		t.Errorf("restored: %+v", again.Documents())
	}
	for _, gvr := range []struct {
		name  string
		known bool
	}{{"pods", true}, {"nothing", false}} {
		if _, ok := again.Known(podsResource.GroupVersion().WithResource(gvr.name)); ok != gvr.known {
			t.Errorf("%s is known: %t", gvr.name, ok)
		}
	}
	f.broken.Store(true)
	if err := again.Refresh(testContext(t)); err == nil || again.Read() {
		t.Errorf("error %v, read %t", err, again.Read())
	}
	f.broken.Store(false)
	if err := again.Refresh(testContext(t)); err != nil || !again.Read() || again.Restore(&docs) || !again.Documents().At.After(docs.At) {
		t.Errorf("error %v, read %t, at %v", err, again.Read(), again.Documents().At)
	}
}
