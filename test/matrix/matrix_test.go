// Package matrix reads objects in every form, by every verb and of every kind of resource, from a
// gateway in front of four Kubernetes releases (including the oldest and the newest supported one)
// and from a standalone server. Each response must equal that of the kube-apiserver with the same
// objects, and come from the cache unless the table gives a reason.
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
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/conformance"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// waitTimeout is the timeout of conditions that become true soon.
const waitTimeout = 20 * time.Second

// laterPages is how many requests follow the first page of a walk: those for its second and third page, and the
// second one again.
const laterPages = 3

// A column is a server whose responses are compared with those of the kube-apiserver with the same
// objects.
type column struct {
	name    string
	env     *conformance.Env
	oracle  *conformance.Target
	target  *conformance.Target
	metrics func(ctx context.Context, families ...string) (realkube.Metrics, error)
	changed int64 // the version before the last changes
	// withoutWatchList means that the kube-apiserver does not support streaming lists, which is the
	// default in 1.30 and 1.33.
	withoutWatchList bool
	// some are the resources that each form has in the short form, as offsets that move with the form;
	// nil means all. The releases between the oldest and the newest have all of them together.
	some []int
}

// cluster starts a kube-apiserver of a release and creates the objects.
func cluster(ctx context.Context, t *testing.T, release string) *conformance.Oracle {
	t.Helper()
	opts := realkube.Options{Dir: filepath.Join(t.TempDir(), "kube"), Release: release}
	if release != realkube.Release130 { // it does not have the feature gate
		opts.FeatureGates = map[string]bool{"CBORServingAndStorage": true}
	}
	o, err := conformance.StartOracle(ctx, opts)
	must(t, err)
	t.Cleanup(o.Close)
	must(t, seed(ctx, o.Cluster.AdminConfig()))
	o.Env.OtherRelease = false // the expectations in this package hold for every release
	return o
}

// settle changes some of the objects once all servers of a cluster have cached them, and waits
// until the servers show the changes.
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
			t.Fatalf("%s does not show the same as kube-apiserver: %v", c.name, unsettled)
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

func gateway(ctx context.Context, t *testing.T, name string, o *conformance.Oracle, args ...string) *column {
	t.Helper()
	g, err := realkube.StartGateway(ctx, o.Cluster, args...)
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

// end returns the last lines of a log, without those of requests that the tables expect.
func end(log string) string {
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return strings.Contains(line, "reason=representation") })
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

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
		c.withoutWatchList, c.some = true, []int{0, 2}
		runColumns(ctx, t, o, c)
	})
	t.Run("1.36", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, realkube.Release136)
		c := gateway(ctx, t, before136, o)
		c.some = []int{1, 3, 4}
		runColumns(ctx, t, o, c)
	})
	t.Run("1.37", func(t *testing.T) {
		t.Parallel()
		o := cluster(ctx, t, "")
		runColumns(ctx, t, o, gateway(ctx, t, before137, o), standalone(ctx, t, o))
	})
}

// runColumns compares all cells of columns that share a cluster.
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
			if c.name != alone { // standalone has the history itself
				resumes(ctx, t, o, c)
			}
		})
	}
}

// resumes watches from before the last changes through a new gateway, which must read them from the
// cluster instead of forwarding each watch.
func resumes(ctx context.Context, t *testing.T, o *conformance.Oracle, like *column) {
	since := verbs[slices.IndexFunc(verbs, func(v verb) bool { return v.name == watchSince })]
	byLabel := since
	byLabel.path = func(r resource, changed int64) string { return since.path(r, changed) + "&labelSelector=changed" }
	byLabel.events = func(r resource) []string { return []string{"ADDED", "ADDED"} }
	// The log at level debug has the reason why a watch is forwarded.
	c := gateway(ctx, t, like.name, o, "--log-level=debug")
	c.changed, c.some = like.changed, like.some
	must(t, conformance.Warm(ctx, c.env, c.target, listed()))
	before := c.count(ctx, t, tally{})
	for _, f := range forms {
		before = c.compareRow(ctx, t, f, byLabel, before)
		before = c.compareRow(ctx, t, f, since, before)
	}
}

// selectors reads by field selectors that not every release supports. The cache applies those that
// the cluster supports.
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

// exception returns the form's exception for a cell, if any.
func (c *column) exception(f form, v verb, r resource) exception {
	for _, e := range f.except {
		if (e.column == "" || e.column == c.name) && (e.resource == "" || e.resource == r.name) && (e.verb == "" || e.verb == v.name) {
			return e
		}
	}
	return exception{}
}

// row returns the resources of a row. The forms that the cache holds have all, and the cells that are
// different in a release are always compared.
func (c *column) row(f form, v verb) []resource {
	if c.some == nil || soak.Enabled() || f.name == "JSON" || f.name == "protobuf" {
		return resources
	}
	moved := slices.IndexFunc(forms, func(other form) bool { return other.name == f.name })
	var out []resource
	for i, r := range resources {
		if slices.Contains(c.some, (i+moved)%len(resources)) || c.exception(f, v, r).column != "" {
			out = append(out, r)
		}
	}
	return out
}

// compareRow compares the cells of a form and a verb and checks where the responses came from: it
// checks the cells from the cache together, and each forwarded cell separately.
func (c *column) compareRow(ctx context.Context, t *testing.T, f form, v verb, before tally) tally {
	t.Helper()
	row := c.row(f, v)
	after, ahead := before, false
	for deadline := time.Now().Add(waitTimeout); ; {
		before = after
		for _, r := range row {
			if e := c.exception(f, v, r); e.missing == "" && e.forwarded == reason.NotForwarded {
				c.compare(ctx, t, f, v, r)
			}
		}
		after = c.count(ctx, t, before)
		// The gateway forwards a read if a feed takes more than 100 ms to reach the most recent version,
		// as it may on a busy machine.
		// If the upstream served the first page, with others, the pages after it are of its version, which the
		// cache may not have reached.
		late := reason.VersionAhead.String()
		walks := after.sources["collapsed"] - before.sources["collapsed"]
		ahead = v.walk && walks > 0 && after.forwarded[late]-before.forwarded[late] <= laterPages*walks
		if after.forwarded[late] == before.forwarded[late] || ahead || time.Now().After(deadline) {
			break
		}
	}
	name := f.name + "/" + v.name
	for why, n := range after.forwarded {
		if n > before.forwarded[why] && !(ahead && why == reason.VersionAhead.String()) {
			t.Errorf("%s: %v requests were forwarded, reason %q", name, n-before.forwarded[why], why)
		}
	}
	right := v.sources
	if right == nil {
		right = []string{"cached"}
	}
	if ahead {
		right = append(slices.Clone(right), "forwarded") // for the reason above only
	}
	for source, n := range after.sources {
		if n > before.sources[source] && !slices.Contains(right, source) {
			t.Errorf("%s: %v responses were %q, want one of %q", name, n-before.sources[source], source, right)
		}
	}
	for _, r := range row {
		e := c.exception(f, v, r)
		if e.forwarded == reason.NotForwarded {
			continue
		}
		before, why := after, e.forwarded.String()
		c.compare(ctx, t, f, v, r)
		if after = c.count(ctx, t, before); after.forwarded[why] == before.forwarded[why] {
			t.Errorf("%s/%s: the request was not forwarded, want reason %q", name, r.name, why)
		}
	}
	return after
}

// compare compares the responses of one cell.
func (c *column) compare(ctx context.Context, t *testing.T, f form, v verb, r resource) {
	t.Helper()
	e := c.exception(f, v, r)
	one := c.request(f, v, r)
	one.Want = e.status
	oracle := c.oracle
	if v.name == watchList && c.withoutWatchList && e.forwarded == reason.NotForwarded {
		// kube-apiserver does not support this verb, so there is no oracle. The gateway supports it
		// nevertheless: compare the gateway with itself, and check the events that the case expects.
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
	// A 406 lists the supported media types, and the oracle of the standalone server also supports
	// CBOR.
	one.IgnoreBody = c.name == alone && c.exception(f, v, r).status == http.StatusNotAcceptable
	if v.events != nil {
		one.Watch, one.Events = true, v.events(r)
	}
	return one
}

// Metrics that count the responses of a server.
const (
	requestsTotal  = "kubeweir_requests_total"
	forwardedTotal = "kubeweir_forwarded_reads_total"
)

// A tally is the state of a server's counters.
type tally struct {
	sent      int64
	responded float64
	sources   map[string]float64 // responses to reads of resources, by source
	forwarded map[string]float64 // reads, by reason for forwarding
}

// count waits until all requests sent since before are counted. Responses are counted once they are
// written, watches once they have ended.
func (c *column) count(ctx context.Context, t *testing.T, before tally) tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	sent := c.target.Sent()
	for {
		m, err := c.metrics(ctx, requestsTotal, forwardedTotal)
		must(t, err)
		now := tally{sent: sent, sources: make(map[string]float64), forwarded: make(map[string]float64)}
		for _, series := range m[requestsTotal].GetMetric() {
			n := series.GetCounter().GetValue()
			now.responded += n
			for _, l := range series.GetLabel() {
				if l.GetName() == "source" {
					now.sources[l.GetValue()] += n
				}
			}
		}
		for _, series := range m[forwardedTotal].GetMetric() {
			now.forwarded[series.GetLabel()[0].GetValue()] += series.GetCounter().GetValue()
		}
		if now.responded-before.responded >= float64(sent-before.sent) {
			return now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: sent %d requests, %v are counted", c.name, sent-before.sent, now.responded-before.responded)
		case <-time.After(time.Millisecond):
		}
	}
}
