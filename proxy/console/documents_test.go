package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/explain"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
	"github.com/kubeweir/kubeweir/watchmux"
)

// handler is a Handler whose state tests set.
type handler struct {
	mu          sync.Mutex // for tests that change figures meanwhile
	served      []served
	collections []cache.CollectionStatus
	open        []watch.OpenWatch
	looks       atomic.Int64
	requested   explain.Question
}

func (h *handler) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

// served are requests that had a response.
type served struct {
	source, verb, code string
	requests, bytes    float64
}

// Describe implements prometheus.Collector.
func (h *handler) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (h *handler) Collect(to chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	labels := []string{"source", "verb", "code", "resource"}
	requests, bytes := prometheus.NewDesc("kubeweir_requests_total", "", labels, nil), prometheus.NewDesc("kubeweir_response_bytes_total", "", labels, nil)
	for _, s := range h.served {
		resource := ""
		if s.verb != "post" {
			resource = "pods"
		}
		to <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, s.requests, s.source, s.verb, s.code, resource)
		to <- prometheus.MustNewConstMetric(bytes, prometheus.CounterValue, s.bytes, s.source, s.verb, s.code, resource)
	}
}

func (h *handler) Collections() []cache.CollectionStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks.Add(1)
	return h.collections
}

func (h *handler) OpenWatches() []watch.OpenWatch { return h.open }

func (h *handler) Usage() *usage.Usage {
	return usage.New(usage.Options{})
}

func (h *handler) Budgets() []policy.BudgetState { return []policy.BudgetState{{Rule: "rules[0]"}} }

func (h *handler) WatchesOpen() int { return len(h.open) }

func (h *handler) EndWatch(id uint64) bool {
	n := len(h.open)
	h.open = slices.DeleteFunc(h.open, func(o watch.OpenWatch) bool { return o.ID == id })
	return len(h.open) < n
}

func (h *handler) Denials() []proxy.Denial {
	return []proxy.Denial{{ID: 1, DeniedRequest: proxy.DeniedRequest{User: "jane", Verb: "list", Resource: "secrets"}, Last: time.Now(), Count: 3}}
}

func (h *handler) EndedWatches() []proxy.EndedWatch {
	return []proxy.EndedWatch{{User: "jane", Resource: "pods", Reason: reason.PermissionRevoked.String(), Seconds: 60, Ended: time.Now()}}
}

func (h *handler) Checks() []healthz.CheckResult {
	return []healthz.CheckResult{{Name: "ping"}, {Name: "feeds", Err: errors.New("pods is stale")}}
}

func (h *handler) Explain(_ context.Context, q explain.Question) (*explain.Explanation, error) {
	h.requested = q
	if q.Method == "" {
		return nil, errors.New("the method must be one of HTTP")
	}
	return &explain.Explanation{Request: explain.Request{Verb: "list", Resource: "pods"}, Route: "cached", Text: "From the cache.", Steps: []explain.Step{{Step: "parsed", Text: "list of pods"}}}, nil
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// busy returns a handler of a cluster with load.
func busy() *handler {
	return &handler{
		served: []served{
			{"cached", "list", "200", 900, 9e6}, {"forwarded", "get", "200", 50, 1e6}, {"forwarded", "post", "201", 48, 0}, {"forwarded", "post", "500", 2, 0},
		},
		collections: []cache.CollectionStatus{{
			Resource: pods, Encoding: api.JSON, RV: 1 << 60, Sizes: store.Sizes{Objects: 5, Bytes: 5000},
			State:     reflector.State{Phase: reflector.Synced, Since: time.Now().Add(-time.Hour), LastContact: time.Now().Add(-time.Second)},
			Watches:   watchmux.Stats{Watchers: 3, Lagging: 1, Appended: 100, Deliveries: 300, Events: 10, Bytes: 1000, OldestAge: int64(time.Minute)},
			Checked:   time.Now(),
			LastCheck: &selfcheck.Report{Result: selfcheck.Differs, Objects: 5, Differing: 1, Took: time.Second, At: time.Now()},
		}, {
			Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Encoding: api.Protobuf,
			State: reflector.State{Phase: reflector.Stale, Since: time.Now().Add(-time.Minute), Err: errors.New("upstream unreachable")},
		}},
		open: []watch.OpenWatch{
			{ID: 7, Client: watch.Client{User: "jane", UserAgent: "kubectl", LabelSelector: "app=" + strings.Repeat("x", 1000)}, Resource: pods, Began: time.Now().Add(-time.Minute), Events: 1},
			{ID: 8, Client: watch.Client{User: "Bob", UserAgent: "k9s"}, Resource: pods, Began: time.Now(), Events: 5},
		},
	}
}

func clusterOf(name string, h Handler) *Cluster {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeweir_upstream_requests_total"}, []string{"purpose", "method", "code"})
	requests.WithLabelValues("client", "GET", "200").Add(100)
	requests.WithLabelValues("list", "GET", "200").Add(10)
	requests.WithLabelValues("list", "GET", "0").Add(2)
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeweir_upstream_response_bytes_total"}, []string{"purpose"})
	bytes.WithLabelValues("list").Add(1e6)
	period := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeweir_cache_check_period_seconds"})
	period.Set(300)
	registry.MustRegister(requests, bytes, period)
	if collector, ok := h.(prometheus.Collector); ok {
		registry.MustRegister(collector)
	}
	return &Cluster{
		Name: name, Handler: h, Metrics: registry,
		Upstream: &Upstream{
			Server: "https://10.0.0.1:6443", Version: func() string { return "v1.36.3" },
			Reachable: func() (bool, time.Time) { return true, time.Time{} },
		},
		LastChange: func() *time.Time { now := time.Now(); return &now },
		Check:      func(context.Context, func(schema.GroupVersionResource) bool) {},
	}
}

func serving(clusters ...*Cluster) func(*Options) {
	return func(o *Options) { o.Clusters = func() []*Cluster { return clusters } }
}

// read decodes the response to a request from this machine.
func read[T any](t *testing.T, c *Console, path string) (document T) {
	t.Helper()
	w := request(c, "GET", path, nil)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&document); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return document
}

func TestOverview(t *testing.T) {
	c := open(t, serving(clusterOf("", busy())))
	o := read[Overview](t, c, "/console/api/overview")
	if o.Ready || len(o.Checks) != 2 || o.Checks[1].Reason != "pods is stale" {
		t.Errorf("health: %+v", o.Checks)
	}
	if o.Requests.Total != 1000 || o.Requests.BySource["cached"].Total != 900 || o.Requests.Errors.Total != 2 || o.Requests.Rate != nil {
		t.Errorf("requests: %+v", o.Requests)
	}
	if o.Reads.HitShare == nil || *o.Reads.HitShare != 900.0/950 {
		t.Errorf("hit share: %v", o.Reads.HitShare)
	}
	if o.Saved.Requests != 900-12 || o.Saved.Bytes != 9e6-1e6 || math.Abs(o.Saved.CPUSeconds-(888*requestCost+8e6*byteCost)) > 1e-9 || o.Saved.Estimate == "" {
		t.Errorf("saved: %+v", o.Saved)
	}
	if o.Lag.Seconds == nil || *o.Lag.Seconds < 59 || o.Lag.Collection != "deployments.apps" {
		t.Errorf("lag: %+v", o.Lag)
	}
	if s := o.Collections; s.Total != 2 || s.Synced != 1 || s.Stale != 1 || s.Objects != 5 || s.Bytes != 5000 {
		t.Errorf("collections: %+v", s)
	}
	if o.Watches.Lagging != 1 || o.Watches.EventsIn.Total != 100 || o.Watches.EventsOut.Total != 300 || o.Upstream == nil || !o.Upstream.Reachable {
		t.Errorf("watches: %+v, upstream %+v", o.Watches, o.Upstream)
	}
}

func TestCollections(t *testing.T) {
	c := open(t, serving(clusterOf("", busy())))
	list := read[Collections](t, c, "/console/api/collections").Collections
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	first, second := list[0], list[1]
	if first.ID != "/v1/pods/json" || first.State != "synced" || first.ResourceVersion != "1152921504606846976" || first.Watchers != 3 ||
		first.History.Seconds != 60 || first.Age == nil || first.Series == nil || first.Checked == nil {
		t.Errorf("%+v", first)
	}
	if second.State != "stale" || second.Error != "upstream unreachable" || second.LastContact != nil {
		t.Errorf("%+v", second)
	}
}

func TestRatesAndSeriesFollowCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := busy()
		c := open(t, serving(clusterOf("", h)))
		defer c.Close()
		time.Sleep(500 * time.Millisecond)
		for range 30 {
			time.Sleep(time.Second)
			h.change(func() {
				h.served[0].requests += 10
				h.served[1].requests += 10
				h.collections = slices.Clone(h.collections)
				h.collections[0].Watches.Appended += 2
			})
		}
		// Without earlier requests, rates are since the last samples.
		time.Sleep(2 * time.Second)
		o := read[Overview](t, c, "/console/api/overview")
		if o.Requests.Rate == nil || *o.Requests.Rate < 1 || len(o.Series.CachedRate) != 2 {
			t.Fatalf("%v, %v", o.Requests.Rate, o.Series.CachedRate)
		}
		if got := *o.Series.CachedRate[1]; got != 10 {
			t.Errorf("a series of %v", got)
		}
		if got := *o.Series.HitShare[1]; got != 0.5 {
			t.Errorf("a share of %v", got)
		}
		list := read[Collections](t, c, "/console/api/collections").Collections
		if s := list[0].Series.EventRate; len(s) != 2 || *s[1] != 2 || *list[0].Series.Objects[1] != 5 {
			t.Errorf("a series of %v", s)
		}
		// With a request each second, a rate covers the last five seconds.
		for range 8 {
			time.Sleep(time.Second)
			h.change(func() { h.served[0].requests++ })
			o = read[Overview](t, c, "/console/api/overview")
		}
		if got := o.Reads.HitShareRecent; got == nil || *got != 1 {
			t.Errorf("recent hit ratio: %v", got)
		}
		// A reset of the counts does not cause negative rates.
		h.change(func() { h.served = nil })
		time.Sleep(time.Second)
		if o = read[Overview](t, c, "/console/api/overview"); o.Requests.Rate != nil {
			t.Errorf("after a reset: %v", *o.Requests.Rate)
		}
	})
}

func TestSeriesAreBounded(t *testing.T) {
	h := busy()
	clusters := []*Cluster{clusterOf("a", h)}
	c := open(t, func(o *Options) { o.Clusters = func() []*Cluster { return clusters } })
	now := time.Now()
	c.Close() // from here on, only the test records samples
	for i := range 3 * maxSamples {
		c.docs.sample(now.Add(time.Duration(i) * samplePeriod))
	}
	p := c.docs.histories["a"]
	if n := len(overviewSeries([]*history{p}).CachedRate); n != maxSamples-1 || len(p.marks) > 32 || len(p.collection("/v1/pods/json").Objects) != maxSamples-1 {
		t.Errorf("%d points, %d marks", n, len(p.marks))
	}
	h.collections = nil
	c.docs.sample(now.Add(4 * maxSamples * samplePeriod))
	if len(p.collections) != 0 {
		t.Error("removed collections are remembered")
	}
	clusters = nil
	c.docs.sample(now.Add(5 * maxSamples * samplePeriod))
	if len(c.docs.histories) != 0 {
		t.Error("removed clusters are remembered")
	}
}

func TestSeveralClusters(t *testing.T) {
	c := open(t, serving(clusterOf("a", busy()), clusterOf("b", busy())))
	if s := read[Session](t, c, "/console/api/session"); !slices.Equal(s.Clusters, []string{"a", "b"}) {
		t.Errorf("%+v", s)
	}
	all, one := read[Overview](t, c, "/console/api/overview"), read[Overview](t, c, "/console/api/overview?cluster=b")
	if all.Requests.Total != 2000 || one.Requests.Total != 1000 || one.Cluster != "b" || len(all.Checks) != 4 || all.Checks[0].Cluster != "a" {
		t.Errorf("%v of all, %v of one", all.Requests.Total, one.Requests.Total)
	}
	if list := read[Collections](t, c, "/console/api/collections").Collections; len(list) != 4 || list[0].Cluster != "a" || list[2].ID != "b:/v1/pods/json" {
		t.Errorf("%+v", list)
	}
	if list := read[Collections](t, c, "/console/api/collections?cluster=b").Collections; len(list) != 2 {
		t.Errorf("%+v", list)
	}
	for _, path := range []string{"overview", "collections", "clients", "watches", "upstreams", "permissions", "checks", "events?topics=overview"} {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if w := request(c, "GET", "/console/api/"+path+sep+"cluster=none", nil); w.Code != 404 {
			t.Errorf("%s of an unknown cluster: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestWatches(t *testing.T) {
	h := busy()
	c := open(t, serving(clusterOf("", h)))
	all := read[OpenWatches](t, c, "/console/api/watches")
	if all.Open != 2 || all.Shown != 2 || all.Watches[0].User != "jane" || len(all.Watches[0].Selector) > maxShown+3 || all.Watches[0].Form != "json" {
		t.Errorf("%+v", all)
	}
	for query, want := range map[string]string{"sort=events": "Bob jane", "sort=user": "Bob jane", "user=bo": "Bob", "resource=POD": "jane Bob", "resource=services": ""} {
		var users []string
		for _, w := range read[OpenWatches](t, c, "/console/api/watches?"+query).Watches {
			users = append(users, w.User)
		}
		if got := strings.Join(users, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	h.open = nil
	for i := range uint64(MaxWatches + 50) {
		h.open = append(h.open, watch.OpenWatch{ID: i, Resource: pods})
	}
	many := read[OpenWatches](t, c, "/console/api/watches?sort=age&resource=pod")
	if many.Open != MaxWatches+50 || many.Shown != MaxWatches {
		t.Errorf("%d of %d", many.Shown, many.Open)
	}
}

func TestPermissionsUpstreamsChecks(t *testing.T) {
	c := open(t, serving(clusterOf("", busy())))
	p := read[Permissions](t, c, "/console/api/permissions")
	if len(p.Denials) != 1 || p.Denials[0].User != "jane" || len(p.EndedWatches) != 1 || p.EndedWatches[0].Reason != "permission-revoked" || p.Invalidations.Last == nil {
		t.Errorf("%+v", p)
	}
	u := read[Upstreams](t, c, "/console/api/upstreams").Clusters
	if len(u) != 1 || u[0].Server != "https://10.0.0.1:6443" || u[0].Kubernetes != "v1.36.3" || len(u[0].Requests) != 2 || u[0].Requests[1].Errors != 2 {
		t.Errorf("%+v", u)
	}
	checks := read[Checks](t, c, "/console/api/checks")
	if checks.Period != 300 || len(checks.Collections) != 2 || checks.Collections[0].Result != "differs" || checks.Collections[1].Result != "none" {
		t.Errorf("%+v", checks)
	}
}

func TestExplain(t *testing.T) {
	h := busy()
	c := open(t, serving(clusterOf("", h)))
	post := func(body string) (int, string) {
		w := request(c, "POST", "/console/api/explain", func(r *http.Request) { r.Body = readerOf(body) })
		return w.Code, w.Body.String()
	}
	code, body := post(`{"method":"GET","path":"/api/v1/pods","user":"jane","groups":["a"]}`)
	if code != 200 || !strings.Contains(body, `"route":"cached"`) || h.requested.User != "jane" || h.requested.Target != "/api/v1/pods" {
		t.Errorf("%d %s, question %+v", code, body, h.requested)
	}
	for body, want := range map[string]int{
		`{"path":"/"}`: 400, `{`: 400, `[]`: 400, `{"method":7}`: 400, `{"method":"GET","cluster":"none"}`: 404, strings.Repeat("x", maxBody+1): 413,
	} {
		if code, got := post(body); code != want {
			t.Errorf("%.40s: %d %s, want %d", body, code, got, want)
		}
	}
	if w := request(c, "POST", "/console/api/explain", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); w.Code != 415 {
		t.Errorf("text: %d", w.Code)
	}
	c = open(t, serving(clusterOf("main", h), clusterOf("lab", h)))
	for path, want := range map[string]int{"/clusters/lab": 400, "/clusters/lab/api/v1/pods": 400, "/clusters/labs/api/v1/pods": 200, "/api/v1/pods": 200} {
		if code, got := post(`{"method":"GET","path":"` + path + `","cluster":"main"}`); code != want || (code == 400) != strings.Contains(got, "leave /clusters/lab out") {
			t.Errorf("%s: %d %s, want %d", path, code, got, want)
		}
	}
}

func TestBadParameters(t *testing.T) {
	c := open(t, serving(clusterOf("", busy())))
	for path, want := range map[string]int{
		"watches?sort=none": 400, "clients?sort=none": 400, "clients?window=2h": 400, "watches?user=" + strings.Repeat("x", maxParameter+1): 400,
		"store": 404, "events?topics=none": 400, "events": 400, "events?topics=store": 400, "events?topics=overview,collections,watches,checks,clients": 400,
		"overview?cluster=" + strings.Repeat("x", maxParameter+1): 404, "watches?sort=age": 200, "clients?window=1h&sort=cpu": 200,
	} {
		if w := request(c, "GET", "/console/api/"+path, nil); w.Code != want {
			t.Errorf("%.60s: %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	if w := request(c, "POST", "/console/api/overview", nil); w.Code != 404 && w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestViewsAreShared: clusters are read once in half a second, however many clients request
// documents.
func TestViewsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := busy()
		c := open(t, serving(clusterOf("", h)))
		defer c.Close()
		for range 100 {
			request(c, "GET", "/console/api/overview", nil)
			request(c, "GET", "/console/api/collections", nil)
		}
		if n := h.looks.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
		time.Sleep(maxAge)
		request(c, "GET", "/console/api/overview", nil)
		if n := h.looks.Load(); n != 2 {
			t.Errorf("%d looks", n)
		}
	})
}

func TestActionsAreAuthorizedAndLimited(t *testing.T) {
	h := busy()
	act := func(c *Console, name, body string, change func(*http.Request)) (int, string) {
		w := request(c, "POST", "/console/api/actions/"+name, func(r *http.Request) {
			r.Body = readerOf(body)
			if change != nil {
				change(r)
			}
		})
		return w.Code, w.Body.String()
	}
	c := open(t, serving(clusterOf("", h)))
	if code, body := act(c, "end-watch", `{"id":"7"}`, nil); code != 403 || len(h.open) != 2 {
		t.Errorf("without --console-actions: %d %s", code, body)
	}
	checked := make(chan []string, 1)
	cluster := clusterOf("", h)
	cluster.Check = func(_ context.Context, which func(schema.GroupVersionResource) bool) {
		var names []string
		for _, gvr := range []schema.GroupVersionResource{pods, {Group: "apps", Resource: "deployments"}} {
			if which(gvr) {
				names = append(names, gvr.Resource)
			}
		}
		checked <- names
	}
	var log bytes.Buffer
	c = open(t, func(o *Options) { serving(cluster)(o); o.Actions = true; o.Log = textLog(&log) })
	for name, change := range map[string]func(*http.Request){
		"no header": func(r *http.Request) { r.Header.Del(actionHeader) },
		"a page":    func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"a form":    func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		if code, body := act(c, "end-watch", `{"id":"7"}`, change); code != 403 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, _ := act(c, "end-watch", `{"id":"7"}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }); code != 415 {
		t.Errorf("text: %d", code)
	}
	for _, one := range []struct {
		name, body string
		want       int
	}{
		{"end-watch", `{"id":"7"}`, 200}, {"end-watch", `{"id":"7"}`, 404}, {"end-watch", `{"id":"!"}`, 400}, {"end-watch", `{"cluster":"none","id":"7"}`, 404},
		{"block-user-agent", `{"userAgent":"k9s*","minutes":5}`, 200}, {"block-user-agent", `{"userAgent":"","minutes":5}`, 400},
		{"block-user-agent", `{"userAgent":"k9s*","minutes":-1}`, 400}, {"unblock-user-agent", `{"userAgent":"none"}`, 404},
		{"check", `{"resources":["deployments.apps"]}`, 200}, {"check", `{"cluster":"none"}`, 404}, {"none", `{}`, 404},
	} {
		if code, body := act(c, one.name, one.body, nil); code != one.want {
			t.Errorf("%s %s: %d %s, want %d", one.name, one.body, code, body, one.want)
		}
	}
	if names := <-checked; !slices.Equal(names, []string{"deployments"}) || len(h.open) != 1 {
		t.Errorf("checked %v, %d watches", names, len(h.open))
	}
	if !strings.Contains(log.String(), "end-watch") || !strings.Contains(log.String(), "127.0.0.1") {
		t.Errorf("the log is %q", log.String())
	}
	last := 0
	for range maxActions + 1 {
		last, _ = act(c, "end-watch", `{"id":"9"}`, nil)
	}
	if last != 429 {
		t.Errorf("many actions: %d", last)
	}
}
