package console

import (
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// view is the state of a cluster at a time.
type view struct {
	*Cluster
	at          time.Time
	metrics     metrics
	collections []cache.CollectionStatus
	counts      counts
	history     *history
}

func newView(now time.Time, cluster *Cluster, m metrics, h *history) *view {
	v := &view{Cluster: cluster, at: now, metrics: m, collections: cluster.Handler.Collections(), history: h, counts: make(counts)}
	v.countRequests()
	for purpose, n := range m.by("kubeweir_upstream_requests_total", "purpose") {
		v.counts["upstream/"+purpose] = n
	}
	v.counts["upstreamBytes"] = m.sum("kubeweir_upstream_response_bytes_total")
	for reason, n := range m.by("kubeweir_rejections_total", "reason") {
		v.counts["rejected/"+reason] = n
	}
	v.counts["writes"] = m.sum(storeRevision)
	for i := range v.collections {
		s := &v.collections[i].Watches
		v.counts["events/"+collectionID(&v.collections[i])] = float64(s.Appended)
		v.counts["eventsIn"] += float64(s.Appended)
		v.counts["eventsOut"] += float64(s.Deliveries)
	}
	h.mark(now, v.counts)
	return v
}

// storeRevision is the metric with the revision of the store of a standalone.
const storeRevision = "kubeweir_store_revision"

// countRequests counts requests by source. Reads are gets, lists and watches of resources, hits those
// that the cache served or that shared an upstream request, errors responses from 500 on.
func (v *view) countRequests() {
	for source, n := range v.metrics.by("kubeweir_response_bytes_total", "source") {
		v.counts["sent/"+source] = n
		v.counts["sent"] += n
	}
	v.metrics.each("kubeweir_requests_total", func(label func(string) string, series *dto.Metric) {
		n, source := value(series), label("source")
		v.counts["requests"] += n
		v.counts["requests/"+source] += n
		if label("code") >= "500" {
			v.counts["errors"] += n
		}
		if verb := label("verb"); label("resource") != "" && (verb == "get" || verb == "list" || verb == "watch") {
			v.counts["reads"] += n
			if source == "cached" {
				v.counts["hits"] += n
			}
		}
	})
	v.counts["hits"] += v.metrics.sum("kubeweir_collapsed_shared_total")
}

// count returns a count with its rate.
func (v *view) count(name string) Figure {
	total := v.counts[name]
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
