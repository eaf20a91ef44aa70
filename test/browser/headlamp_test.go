package browser

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// resources are the resources of Headlamp's overview, map and workloads.
var resources = []string{
	"/api/v1/configmaps", "/api/v1/events", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/persistentvolumeclaims",
	"/api/v1/pods", "/api/v1/secrets", "/api/v1/serviceaccounts", "/api/v1/services",
	"/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets",
	"/apis/batch/v1/cronjobs", "/apis/batch/v1/jobs", "/apis/discovery.k8s.io/v1/endpointslices",
	"/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/networkpolicies",
}

const (
	// cluster is the path below which Headlamp's backend serves the API of a cluster.
	cluster = "/clusters/main"
	// tabs is spread over profiles with tabsOfProfile each, because a browser allows 255 WebSockets
	// per profile.
	tabs, tabsOfProfile = 50, 10
)

// TestHeadlamp opens a dashboard in one tab, and then in fifty. By kube-apiserver's metrics that
// costs one watch per resource, and every tab sees every write. The gateway has the profile for
// dashboards, and there are writes all the time, as in any cluster.
func TestHeadlamp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	g := startGateway(t, "--profile=dashboard")
	before := openWatches(ctx, t)
	dashboard := httptest.NewServer(newBackend(t, g))
	t.Cleanup(dashboard.CloseClientConnections)
	b := startChromium(t, "dashboard.js")
	direct, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)

	writing, rest := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { writeLeases(writing, t, direct) })
	defer writer.Wait()
	defer rest()

	d := &watchedTabs{b: b, url: dashboard.URL}
	for _, n := range []int{1, tabs} {
		began := time.Now()
		d.openUntil(ctx, n)
		awaitOneWatchEach(ctx, t, before, n)
		opened := time.Since(began)
		began = time.Now()
		name := "seen-by-" + strconv.Itoa(n)
		_, err := direct.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		d.awaitAdded(ctx, name)
		must(t, direct.CoreV1().ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{}))
		t.Logf("%d tabs: %d watches opened in %s, an event seen by all after %s; Chromium and its driver: %d MiB",
			n, n*len(resources), opened.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), memoryOf(t, b.pid)>>20)
	}
}

// writeLeases creates Leases, which no page watches, until ctx is done.
func writeLeases(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}
		if _, err := client.CoordinationV1().Leases("default").Create(ctx, lease, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
	}
}

// newBackend returns a stand-in for Headlamp's backend: it serves the page and forwards requests
// below a cluster's path with the token of the logged-in user, WebSockets included.
func newBackend(t *testing.T, g *realkube.Gateway) http.Handler {
	t.Helper()
	target, err := url.Parse(g.URL())
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+kube.Token(realkube.Admin))
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: kube.ServingCAs()}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16},
	}
	mux := http.NewServeMux()
	mux.Handle(cluster+"/", http.StripPrefix(cluster, proxy))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>dashboard</title>"))
	})
	return mux
}

// watchedTabs are the open tabs.
type watchedTabs struct {
	b    *chromium
	url  string
	open int
}

// openUntil opens tabs until there are n, and returns when all their WebSockets are open.
func (d *watchedTabs) openUntil(ctx context.Context, n int) {
	d.b.t.Helper()
	waiting := map[string]bool{}
	for ; d.open < n; d.open++ {
		d.b.open(d.open, strconv.Itoa(d.open/tabsOfProfile), d.url)
		d.b.send(d.open, map[string]any{"cluster": cluster, "resources": resources})
		for _, resource := range resources {
			waiting[fmt.Sprint(d.open, resource)] = true
		}
	}
	for len(waiting) > 0 {
		tab, e := d.next(ctx, fmt.Sprintf("%d WebSockets to open", len(waiting)))
		if e.Opened == "base64.binary.k8s.io" {
			delete(waiting, fmt.Sprint(tab, e.Resource))
		}
	}
}

// awaitAdded waits until every tab has seen that a ConfigMap was added.
func (d *watchedTabs) awaitAdded(ctx context.Context, name string) {
	d.b.t.Helper()
	for seen := map[int]bool{}; len(seen) < d.open; {
		tab, e := d.next(ctx, fmt.Sprintf("%s in %d of %d tabs", name, d.open-len(seen), d.open))
		if e.Resource == "/api/v1/configmaps" && e.Type == "ADDED" && e.Name == name {
			seen[tab] = true
		}
	}
}

// A tabEvent is a page's message about one of its WebSockets.
type tabEvent struct {
	Resource string `json:"resource"`
	Opened   string `json:"opened"` // the subprotocol
	Type     string `json:"type"`
	Name     string `json:"name"`
	Message  string `json:"message"`
	Closed   string `json:"closed"`
}

// next returns the next message of a tab. A WebSocket that ends, or an error on it, fails the test.
func (d *watchedTabs) next(ctx context.Context, awaited string) (tab int, e tabEvent) {
	d.b.t.Helper()
	for {
		select {
		case r, ok := <-d.b.ended:
			if !ok {
				d.b.t.Fatalf("the browser ended; awaited: %s", awaited)
			}
			if r.Opened {
				continue
			}
			must(d.b.t, json.Unmarshal([]byte(r.Output), &e))
			if e.Closed != "" || e.Type == "ERROR" {
				d.b.t.Fatalf("tab %d: %+v; awaited: %s", r.Page, e, awaited)
			}
			return r.Page, e
		case <-ctx.Done():
			d.b.t.Fatalf("%v: awaited: %s", context.Cause(ctx), awaited)
		}
	}
}

// openWatches returns the number of watches that kube-apiserver has open, by resource.
func openWatches(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	m, err := kube.Metrics(ctx)
	must(t, err)
	open := map[string]float64{}
	for _, path := range resources {
		group, resource := groupResource(path)
		open[path] = m.Sum("apiserver_longrunning_requests", map[string]string{"verb": "WATCH", "group": group, "resource": resource})
	}
	return open
}

// groupResource splits the path of a resource.
func groupResource(path string) (group, resource string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if parts[0] == "apis" {
		group = parts[1]
	}
	return group, parts[len(parts)-1]
}

// awaitOneWatchEach waits until kube-apiserver has exactly one additional watch of each resource.
func awaitOneWatchEach(ctx context.Context, t *testing.T, before map[string]float64, tabs int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		var wrong []string
		for path, n := range openWatches(ctx, t) {
			if n != before[path]+1 {
				wrong = append(wrong, fmt.Sprintf("%s %v", path, n-before[path]))
			}
		}
		if len(wrong) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			t.Fatalf("with %d tabs kube-apiserver does not have one additional watch of each resource: %s", tabs, strings.Join(wrong, ", "))
		}
	}
}
