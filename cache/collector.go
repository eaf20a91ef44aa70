package cache

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// register registers the counters and the collector of the collections' current state.
func (m *Manager) register(r prometheus.Registerer, checkPeriod time.Duration) error {
	c := m.metrics
	setting := func(name, help string, value float64) prometheus.Collector {
		return gaugefunc.New(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value })
	}
	for _, collector := range []prometheus.Collector{
		c.restarts, c.events, c.fresh, c.syncSeconds, c.rejected, c.checks, c.differences, c.backfills, c.backfilled, newStateCollector(m),
		setting("kubeweir_cache_check_period_seconds", "Interval at which each collection is compared with the upstream; 0 for never.", checkPeriod.Seconds()),
		setting("kubeweir_cache_history_bytes_limit", "Limit on the bytes retained by the event history of each collection; the oldest events are evicted.", float64(m.limits.HistoryBytes)),
		setting("kubeweir_cache_snapshot_bytes_limit", "Limit on the bytes retained by the old snapshots of each collection; the oldest are evicted.", float64(m.limits.SnapshotBytes)),
		setting("kubeweir_cache_query_bytes_limit", "Limit on the bytes of the query columns of each collection; the least recently used are evicted.", float64(m.limits.QueryBytes)),
	} {
		if err := r.Register(collector); err != nil {
			return err
		}
	}
	if m.checkpointer == nil {
		return nil
	}
	return m.checkpointer.Register(r)
}

// stateCollector reads the collections when metrics are scraped.
type stateCollector struct {
	manager *Manager
	gauges  []gauge
}

// gauge is one metric of a collection. Collections of one resource in several API versions have the
// same labels, so their values are combined.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*CollectionStatus) float64
	join func(a, b float64) float64
}

func newStateCollector(m *Manager) *stateCollector {
	c := &stateCollector{manager: m}
	sum := func(a, b float64) float64 { return a + b }
	add := func(name, help string, kind prometheus.ValueType, join func(a, b float64) float64, read func(*CollectionStatus) float64) {
		desc := prometheus.NewDesc("kubeweir_cache_"+name, help, []string{"group", "resource", "encoding"}, nil)
		c.gauges = append(c.gauges, gauge{desc: desc, kind: kind, read: read, join: join})
	}
	level, count := prometheus.GaugeValue, prometheus.CounterValue
	add("objects", "Objects held.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Objects) })
	add("object_bytes", "Encoded size of the objects held.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Bytes) })
	add("indexes", "Labels and fields with an index, because selectors use them.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Indexes) })
	add("snapshots", "Old snapshots retained for chunked lists and lists at an exact version.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Snapshots) })
	add("snapshot_bytes", "Upper bound of the bytes retained by old snapshots.", level, sum, func(r *CollectionStatus) float64 { return float64(r.SnapshotBytes) })
	add("query_columns", "Cached columns and orders for lists with sortBy, where or countBy.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Columns) })
	add("query_bytes", "Upper bound of the bytes of query columns, and of what they retain.", level, sum, func(r *CollectionStatus) float64 { return float64(r.ColumnBytes) })
	add("resource_version", "resourceVersion up to which the collection is current.", level, math.Min, func(r *CollectionStatus) float64 { return float64(r.RV) })
	add("feed_synced", "1 if the collection is synced, 0 if it is starting, stale or stopped.", level, math.Min, func(r *CollectionStatus) float64 {
		if r.State.Phase == reflector.Synced {
			return 1
		}
		return 0
	})
	add("feed_lag_seconds", "Time since the upstream watch last received data or a heartbeat, or since it broke.", level, math.Max, lag)
	add("history_events", "Events retained for watches from older versions and lists at an exact version.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Events) })
	add("history_bytes", "Bytes retained by the event history.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Bytes) })
	add("history_frame_bytes", "Bytes of encoded events, cached with the history for other watches.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.FrameBytes) })
	add("history_seconds", "Age of the oldest retained event.", level, math.Min, func(r *CollectionStatus) float64 { return float64(r.Watches.OldestAge) / 1e9 })
	add("check_age_seconds", "Time since the collection last equaled the upstream in a comparison, or since its first list.", level, math.Max, func(r *CollectionStatus) float64 {
		if r.Checked.IsZero() {
			return 0
		}
		return time.Since(r.Checked).Seconds()
	})
	add("watchers", "Open client watches.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Watchers) })
	add("watchers_lagging", "Client watches with an event unread for longer than a second.", level, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Lagging) })
	add("deliveries_total", "Events delivered to client watches.", count, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Deliveries) })
	add("watchers_expired_total", "Client watches that fell behind the history and ended with 410.", count, sum, func(r *CollectionStatus) float64 { return float64(r.Watches.Ended.Expired) })
	return c
}

// lag returns 0 for a collection that is starting.
func lag(r *CollectionStatus) float64 {
	if r.State.LastContact.IsZero() {
		return 0
	}
	return max(0, time.Since(r.State.LastContact).Seconds())
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for i := range c.gauges {
		ch <- c.gauges[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	values := make(map[[3]string][]float64)
	for _, r := range c.manager.Status() {
		labels := [3]string{r.Resource.Group, r.Resource.Resource, r.Encoding.String()}
		before, joined := values[labels]
		now := make([]float64, len(c.gauges))
		for i := range c.gauges {
			now[i] = c.gauges[i].read(&r)
			if joined {
				now[i] = c.gauges[i].join(before[i], now[i])
			}
		}
		values[labels] = now
	}
	for labels, v := range values {
		for i := range c.gauges {
			g := &c.gauges[i]
			ch <- prometheus.MustNewConstMetric(g.desc, g.kind, v[i], labels[:]...)
		}
	}
}
