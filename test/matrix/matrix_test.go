// Package matrix reads objects in every form, by every verb and of every kind of resource, from a gateway in front of four
// releases of Kubernetes, the oldest and the newest supported among them, and from a standalone server. Each answer is that of the
// kube-apiserver of the same objects, and comes from the cache unless the table says why it does not.
package matrix

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/test/conformance"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// patience is how long something that is soon true may take.
const patience = 20 * time.Second

// A column is a server whose answers are compared with those of the kube-apiserver that has its objects.
type column struct {
	name    string
	env     *conformance.Env
	oracle  *conformance.Target
	target  *conformance.Target
	metrics func(ctx context.Context, families ...string) (realkube.Metrics, error)
	changed int64 // the version before the last changes
	// withoutWatchList columns have a kube-apiserver that knows no streaming lists, as 1.30 and 1.33 are usually set up.
	withoutWatchList bool
}

// cluster starts a kube-apiserver of a release, with the objects.
func cluster(ctx context.Context, t *testing.T, release string) *conformance.Oracle {
	t.Helper()
	opts := realkube.Options{Dir: filepath.Join(t.TempDir(), "kube"), Release: release}
	if release != realkube.Release130 { // which has none
		opts.FeatureGates = map[string]bool{"CBORServingAndStorage": true}
	}
	o, err := conformance.StartOracle(ctx, opts)
	must(t, err)
	t.Cleanup(o.Close)
	must(t, seed(ctx, o.Cluster.AdminConfig()))
	o.Env.OtherRelease = false // what is said here of answers is true of every release
	return o
}

// settle changes some of the objects when the columns of a cluster hold all, and waits until these know.
func settle(ctx context.Context, t *testing.T, o *conformance.Oracle, columns []*column) {
	t.Helper()
	for _, c := range columns {
		must(t, conformance.Warm(ctx, c.env, c.target, listed()))
	}
	before, err := o.Cluster.Revision(ctx)
	must(t, err)
	must(t, change(ctx, o.Cluster.AdminConfig()))
	for _, c := range columns {
		c.changed = before
		unsettled, err := conformance.Settle(ctx, c.env, c.oracle, c.target, listed())
		must(t, err)
		if len(unsettled) > 0 {
			t.Fatalf("%s does not show what kube-apiserver shows: %v", c.name, unsettled)
		}
	}
}

func listed() []conformance.Resource {
	var out []conformance.Resource
	for _, r := range resources {
		out = append(out, conformance.Resource{Path: r.all(), Custom: r.custom})
	}
	return out
}

func gateway(ctx context.Context, t *testing.T, name string, o *conformance.Oracle) *column {
	t.Helper()
	g, err := realkube.StartGateway(ctx, o.Cluster)
	must(t, err)
	t.Cleanup(func() {
		if g.Panicked() || t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, end(g.Log()))
		}
		if g.Panicked() {
			t.Errorf("%s panicked", name)
		}
		g.Close()
	})
	target, err := o.Gateway(g, true)
	must(t, err)
	return newColumn(t, name, o, target, g.Families)
}

func standalone(ctx context.Context, t *testing.T, o *conformance.Oracle) *column {
	t.Helper()
	s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir(), Cluster: o.Cluster, SharedStore: true})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the standalone's log:\n%s", end(s.Log()))
		}
		s.Close()
	})
	target, err := o.Standalone(s, true)
	must(t, err)
	return newColumn(t, alone, o, target, s.Families)
}

func newColumn(t *testing.T, name string, o *conformance.Oracle, target *conformance.Target, metrics func(context.Context, ...string) (realkube.Metrics, error)) *column {
	t.Helper()
	oracle, err := o.Target(false)
	must(t, err)
	hasCBOR := name != before130
	oracle.Through = func(next http.RoundTripper) http.RoundTripper { return newLater(next, hasCBOR) }
	t.Cleanup(oracle.Close)
	t.Cleanup(target.Close)
	return &column{name: name, env: o.Env, oracle: oracle, target: target, metrics: metrics}
}

func end(log string) string { return log[max(0, len(log)-6000):] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMatrix(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	t.Cleanup(cancel)
	t.Run("1.30", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, realkube.Release130)
		c := gateway(ctx, t, before130, o)
		c.withoutWatchList = true
		runColumns(ctx, t, o, c)
	})
	t.Run("1.33", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, realkube.Release133)
		c := gateway(ctx, t, before133, o)
		c.withoutWatchList = true
		runColumns(ctx, t, o, c)
	})
	t.Run("1.36", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, realkube.Release136)
		runColumns(ctx, t, o, gateway(ctx, t, before136, o))
	})
	t.Run("1.37", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, "")
		runColumns(ctx, t, o, gateway(ctx, t, before137, o), standalone(ctx, t, o))
	})
}

// runColumns compares all cells of some columns, which are of one cluster.
func runColumns(ctx context.Context, t *testing.T, o *conformance.Oracle, columns ...*column) {
	settle(ctx, t, o, columns)
	for _, c := range columns {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := c.count(ctx, t, tally{})
			for _, f := range forms {
				for _, v := range verbs {
					before = c.compareRow(ctx, t, f, v, before)
				}
			}
			c.selectors(ctx, t)
			c.shards(ctx, t, c.count(ctx, t, before))
		})
	}
}

// selectors reads by fields that not every release can select by: those that the cluster has are selected by the cache.
func (c *column) selectors(ctx context.Context, t *testing.T) {
	want := http.StatusOK
	if c.name == before130 {
		want = http.StatusBadRequest
	}
	var cases []conformance.Case
	for _, selector := range []string{"spec.type=ClusterIP", "spec.clusterIP!=None", "spec.type!=NodePort,metadata.name=kubernetes"} {
		for _, version := range []string{"", "&resourceVersion=0", "&resourceVersion=0&watch=1&timeoutSeconds=1"} {
			one := conformance.Case{Name: "selectors/" + selector + version, Want: want, Version: conformance.AnyVersion}
			one.Path = "/api/v1/services?fieldSelector=" + url.QueryEscape(selector) + version
			if one.Watch = strings.Contains(version, "watch"); one.Watch && want == http.StatusOK {
				one.Events = []string{"ADDED"}
			}
			cases = append(cases, one)
		}
	}
	conformance.RunReads(ctx, t, c.env, c.oracle, c.target, cases)
}

// exception is what the form says of a cell, nothing for most.
func (c *column) exception(f form, v verb, r resource) exception {
	for _, e := range f.except {
		if (e.column == "" || e.column == c.name) && (e.resource == "" || e.resource == r.name) && (e.verb == "" || e.verb == v.name) {
			return e
		}
	}
	return exception{}
}

// compareRow compares the cells of a form and a verb and looks where the answers came from: those from the cache together,
// those that are forwarded each for itself.
func (c *column) compareRow(ctx context.Context, t *testing.T, f form, v verb, before tally) tally {
	t.Helper()
	for _, r := range resources {
		if e := c.exception(f, v, r); e.missing == "" && e.forwarded == reason.NotForwarded {
			c.compare(ctx, t, f, v, r)
		}
	}
	after := c.count(ctx, t, before)
	name := f.name + "/" + v.name
	for why, n := range after.forwarded {
		if n > before.forwarded[why] {
			t.Errorf("%s: %v forwarded, %q", name, n-before.forwarded[why], why)
		}
	}
	right := v.sources
	if right == nil {
		right = []string{"cached"}
	}
	for source, n := range after.sources {
		if n > before.sources[source] && !slices.Contains(right, source) {
			t.Errorf("%s: %v answered %q, want one of %q", name, n-before.sources[source], source, right)
		}
	}
	for _, r := range resources {
		e := c.exception(f, v, r)
		if e.forwarded == reason.NotForwarded {
			continue
		}
		before, why := after, e.forwarded.String()
		c.compare(ctx, t, f, v, r)
		if after = c.count(ctx, t, before); after.forwarded[why] == before.forwarded[why] {
			t.Errorf("%s/%s: the upstream was not asked, though the table says %q", name, r.name, why)
		}
	}
	return after
}

// compare compares the answers of one cell.
func (c *column) compare(ctx context.Context, t *testing.T, f form, v verb, r resource) {
	t.Helper()
	e := c.exception(f, v, r)
	one := c.request(f, v, r)
	one.Want = e.status
	oracle := c.oracle
	if v.name == watchList && c.withoutWatchList && e.forwarded == reason.NotForwarded {
		// What there is to compare with is the watch that begins with what is there, another verb. That the gateway
		// serves this one nevertheless, and all of it, is what the case says of its events.
		oracle = c.target
	}
	if e.status > 299 {
		one.Watch, one.Walk = false, false
	}
	conformance.RunReads(ctx, t, c.env, oracle, c.target, []conformance.Case{one})
}

func (c *column) request(f form, v verb, r resource) conformance.Case {
	path := v.path(r, c.changed)
	if f.query != "" {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		path += separator + f.query
	}
	accept := f.accept
	if v.list && f.acceptList != "" {
		accept = f.acceptList
	}
	one := conformance.Case{
		Name:    fmt.Sprintf("%s/%s/%s", f.name, v.name, r.name),
		Request: conformance.Request{Path: path, Accept: accept, Header: f.header},
		Version: v.version,
		Walk:    v.walk,
	}
	// Refusals name what a server has: the one that is compared with has CBOR as well.
	one.IgnoreBody = c.name == alone && c.exception(f, v, r).status == http.StatusNotAcceptable
	if v.events != nil {
		one.Watch, one.Events = true, v.events(r)
	}
	return one
}

// What a server counts of its answers.
const (
	requestsTotal  = "kubeweir_requests_total"
	forwardedTotal = "kubeweir_forwarded_reads_total"
)

// A tally is what a server has counted.
type tally struct {
	sent      int64
	answered  float64
	sources   map[string]float64 // answers to reads of resources, by where they came from
	forwarded map[string]float64 // reads, by why they were forwarded
}

// count waits until everything is counted that was sent since before: answers are when they were written, watches when
// they have ended.
func (c *column) count(ctx context.Context, t *testing.T, before tally) tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := c.target.Sent()
	for {
		m, err := c.metrics(ctx, requestsTotal, forwardedTotal)
		must(t, err)
		now := tally{sent: sent, sources: make(map[string]float64), forwarded: make(map[string]float64)}
		for _, series := range m[requestsTotal].GetMetric() {
			n := series.GetCounter().GetValue()
			now.answered += n
			for _, l := range series.GetLabel() {
				if l.GetName() == "source" {
					now.sources[l.GetValue()] += n
				}
			}
		}
		for _, series := range m[forwardedTotal].GetMetric() {
			now.forwarded[series.GetLabel()[0].GetValue()] += series.GetCounter().GetValue()
		}
		if now.answered-before.answered >= float64(sent-before.sent) {
			return now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %d requests were sent, %v counted", c.name, sent-before.sent, now.answered-before.answered)
		case <-time.After(time.Millisecond):
		}
	}
}
