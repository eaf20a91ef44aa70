package console

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Handler is what the requests of a cluster are answered by, as far as the console looks at
// it; *proxy.Gateway is one. Its methods are safe for concurrent use.
type Handler interface {
	Totals() proxy.Totals
	Collections() []cache.CollectionStatus
	WatchesOpen() int
	OpenWatches() []watch.OpenWatch
	EndWatch(id uint64) bool
	Denials() []proxy.Denial
	EndedWatches() []proxy.EndedWatch
	Checks() []healthz.CheckResult
	Usage() *usage.Usage
	Budgets() []policy.BudgetState
	Explain(ctx context.Context, q proxy.Question) (*proxy.Explanation, error)
}

// Cluster is one cluster, or the origin, as far as the console shows it.
type Cluster struct {
	Name    string
	Handler Handler
	// Metrics are those of the cluster's parts.
	Metrics prometheus.Gatherer
	// Check compares the collections that which chooses with the upstream.
	Check func(ctx context.Context, which func(schema.GroupVersionResource) bool)
	// Upstream is nil for the origin in the process.
	Upstream *Upstream
	// Changes are when all decisions were dropped because RBAC objects had changed, the
	// latest first; nil for never.
	Changes func() []time.Time
}

// Upstream is how a cluster is reached.
type Upstream struct {
	// Server is its URL.
	Server string
	// Reachable tells whether it can be reached, as far as is known, and since when not.
	Reachable func() (ok bool, since time.Time)
	// Version is the release that it says it is of, "" if that is not known.
	Version func() string
}

// view is what was read of a cluster at a moment.
type view struct {
	*Cluster
	at          time.Time
	figures     figures
	totals      proxy.Totals
	collections []cache.CollectionStatus
	counts      totals
	past        *past
}

// viewFresh is for how long a view, or a document, is good.
const viewFresh = 500 * time.Millisecond

var errNoCluster = errors.New("there is no cluster of that name")

// look reads the cluster of that name, or all if it is "". The caller holds building.
func (c *Console) look(now time.Time, name string) (list []*view, err error) {
	for _, cluster := range c.Clusters() {
		if name != "" && cluster.Name != name {
			continue
		}
		v := c.views[cluster.Name]
		if v == nil || now.Sub(v.at) >= viewFresh || v.Handler != cluster.Handler {
			v = c.readView(now, cluster)
			c.views[cluster.Name] = v
		}
		list = append(list, v)
	}
	if len(list) == 0 && name != "" {
		return nil, errNoCluster
	}
	return list, nil
}

func (c *Console) readView(now time.Time, cluster *Cluster) *view {
	v := &view{
		Cluster: cluster, at: now, figures: gather(cluster.Metrics, c.Log), totals: cluster.Handler.Totals(),
		collections: cluster.Handler.Collections(), past: c.pastOf(cluster.Name),
	}
	v.counts = cheapTotals(&v.totals, v.collections)
	for purpose, n := range v.figures.by("kubeweir_upstream_requests_total", "purpose") {
		v.counts["upstream/"+purpose] = n
	}
	v.counts["upstreamBytes"] = v.figures.sum("kubeweir_upstream_response_bytes_total")
	for why, n := range v.figures.by("kubeweir_refusals_total", "reason") {
		v.counts["refused/"+why] = n
	}
	v.counts["writes"] = revisionOf(v.figures)
	v.past.note(now, v.counts)
	return v
}

// process reads the process's own metrics, of which those of a single cluster are part.
func (c *Console) process(now time.Time, views []*view) figures {
	if len(views) == 1 && views[0].Metrics == c.Process {
		return views[0].figures
	}
	if c.ofProcess.figures == nil || now.Sub(c.ofProcess.at) >= viewFresh {
		c.ofProcess.figures, c.ofProcess.at = gather(c.Process, c.Log), now
	}
	return c.ofProcess.figures
}

func (c *Console) pastOf(name string) *past {
	p := c.pasts[name]
	if p == nil {
		p = newPast()
		c.pasts[name] = p
	}
	return p
}

// cheapTotals are those that cost next to nothing to find out.
func cheapTotals(t *proxy.Totals, collections []cache.CollectionStatus) totals {
	all := totals{"reads": t.Reads, "hits": t.Hits, "errors": t.Errors}
	for source, of := range t.BySource {
		all["requests/"+source] = of.Requests
		all["requests"] += of.Requests
		all["sent"] += of.Bytes
	}
	for i := range collections {
		s := &collections[i].Watches
		all["events/"+idOf(&collections[i])] = float64(s.Appended)
		all["eventsIn"] += float64(s.Appended)
		all["eventsOut"] += float64(s.Deliveries)
	}
	return all
}

// idOf names a collection within its cluster.
func idOf(c *cache.CollectionStatus) string {
	r := &c.Resource
	return r.Group + "/" + r.Version + "/" + r.Resource + "/" + c.Encoding.String()
}

// rowID names a collection among those of all clusters.
func (v *view) rowID(id string) string {
	if v.Name == "" {
		return id
	}
	return v.Name + ":" + id
}

// numberedID names something that has a number.
func (v *view) numberedID(n uint64) string { return v.rowID(strconv.FormatUint(n, 36)) }

// keepSampling notes samples until the console is closed.
func (c *Console) keepSampling() {
	ticker := time.NewTicker(sampleStep)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			c.sampleNow(now)
		case <-c.closing:
			return
		}
	}
}

// sampleNow notes a sample. A panic leaves building to the others.
func (c *Console) sampleNow(now time.Time) {
	c.building.Lock()
	defer c.building.Unlock()
	c.noteSample(now)
}

// noteSample notes a sample of each cluster, and forgets those that are no more.
// The caller holds building.
func (c *Console) noteSample(now time.Time) {
	there := make(map[string]bool)
	for _, cluster := range c.Clusters() {
		there[cluster.Name] = true
		t, collections, p := cluster.Handler.Totals(), cluster.Handler.Collections(), c.pastOf(cluster.Name)
		counts := cheapTotals(&t, collections)
		s := sample{
			at: now, cached: counts["requests/cached"], forwarded: counts["requests/forwarded"],
			reads: t.Reads, hits: t.Hits, sent: counts["sent"], watches: float64(cluster.Handler.WatchesOpen()),
		}
		held := make(map[string]bool, len(collections))
		for i := range collections {
			status := &collections[i]
			id := idOf(status)
			held[id] = true
			r := p.collections[id]
			if r == nil {
				r = new(ring[collectionSample])
				p.collections[id] = r
			}
			r.add(collectionSample{events: status.Watches.Appended, objects: int32(status.Objects), watchers: int32(status.Watches.Watchers)})
		}
		for id := range p.collections {
			if !held[id] {
				delete(p.collections, id)
			}
		}
		if c.Revision != nil {
			s.writes = c.Revision()
			counts["writes"] = s.writes
		}
		p.samples.add(s)
		p.note(now, counts)
	}
	for name := range c.pasts {
		if !there[name] && name != processPast {
			delete(c.pasts, name)
			delete(c.views, name)
		}
	}
}
