package console

import (
	"strconv"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/proxy"
)

// view is the state of a cluster at a time.
type view struct {
	*Cluster
	at          time.Time
	metrics     metrics
	totals      proxy.Totals
	collections []cache.CollectionStatus
	counts      counts
	history     *history
}

func newView(now time.Time, cluster *Cluster, m metrics, h *history) *view {
	v := &view{
		Cluster: cluster, at: now, metrics: m, totals: cluster.Handler.Totals(), collections: cluster.Handler.Collections(), history: h,
	}
	v.counts = countsOf(&v.totals, v.collections)
	for purpose, n := range m.by("kubeweir_upstream_requests_total", "purpose") {
		v.counts["upstream/"+purpose] = n
	}
	v.counts["upstreamBytes"] = m.sum("kubeweir_upstream_response_bytes_total")
	for reason, n := range m.by("kubeweir_refusals_total", "reason") {
		v.counts["refused/"+reason] = n
	}
	v.counts["writes"] = m.sum(storeRevision)
	h.mark(now, v.counts)
	return v
}

// storeRevision is the metric with the revision of the store of a standalone.
const storeRevision = "kubeweir_store_revision"

// countsOf returns the counts that are cheap to read.
func countsOf(t *proxy.Totals, collections []cache.CollectionStatus) counts {
	all := counts{"reads": t.Reads, "hits": t.Hits, "errors": t.Errors}
	for source, of := range t.BySource {
		all["requests/"+source] = of.Requests
		all["requests"] += of.Requests
		all["sent"] += of.Bytes
	}
	for i := range collections {
		s := &collections[i].Watches
		all["events/"+collectionID(&collections[i])] = float64(s.Appended)
		all["eventsIn"] += float64(s.Appended)
		all["eventsOut"] += float64(s.Deliveries)
	}
	return all
}

// figure returns a count with its rate.
func (v *view) figure(name string, total float64) Figure {
	return Figure{Total: total, Rate: v.history.rate(v.at, name, total)}
}

// add adds a count of another cluster.
func (f *Figure) add(o Figure) { f.Total, f.Rate = f.Total+o.Total, plus(f.Rate, o.Rate) }

// id makes an identifier within a cluster unique among all clusters.
func (v *view) id(id string) string {
	if v.Name == "" {
		return id
	}
	return v.Name + ":" + id
}

// number formats the number of a watch or a denial as an identifier.
func (v *view) number(n uint64) string { return v.id(strconv.FormatUint(n, 36)) }

func (v *view) collectionName(c *cache.CollectionStatus) CollectionName {
	r := &c.Resource
	return CollectionName{v.id(collectionID(c)), v.Name, r.Group, r.Version, r.Resource, c.Encoding.String()}
}

// collectionID identifies a collection within its cluster.
func collectionID(c *cache.CollectionStatus) string {
	r := &c.Resource
	return r.Group + "/" + r.Version + "/" + r.Resource + "/" + c.Encoding.String()
}

// lagOf returns the lag of a collection's feed in seconds. It returns nil while the collection is
// starting, and for feeds within the process, which do not lag.
func lagOf(c *cache.CollectionStatus, now time.Time) *float64 {
	current := c.State.CurrentAt()
	if current.IsZero() || c.State.Phase == reflector.Starting {
		return nil
	}
	return finite(max(0, now.Sub(current).Seconds()))
}

// optional returns nil for a time that is not set.
func optional(t time.Time) *time.Time {
	if t.IsZero() || t.Unix() <= 0 {
		return nil
	}
	return &t
}
