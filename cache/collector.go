package cache

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/watchmux"
)

// register registers the counters and the collector of the collections' current state.
func (m *Manager) register(r prometheus.Registerer, checkPeriod time.Duration) error {
	c := m.parts.metrics
	setting := func(name, help string, value float64) prometheus.Collector {
		return gaugefunc.New(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value })
	}
	for _, collector := range []prometheus.Collector{
		c.restarts, c.events, c.fresh, c.syncSeconds, c.refused, c.checks, c.differences, newStateCollector(m),
		setting("kubeweir_cache_check_period_seconds", "Interval at which each collection is compared with the upstream; 0 for never.", checkPeriod.Seconds()),
		setting("kubeweir_cache_history_bytes_limit", "Limit on the bytes retained by the event history of each collection; the oldest events are evicted.", float64(m.parts.limits.HistoryBytes)),
		setting("kubeweir_cache_snapshot_bytes_limit", "Limit on the bytes retained by the old snapshots of each collection; the oldest are evicted.", float64(m.parts.limits.SnapshotBytes)),
		setting("kubeweir_cache_query_bytes_limit", "Limit on the bytes of the query columns of each collection; the least recently used are evicted.", float64(m.parts.limits.QueryBytes)),
	} {
		if err := r.Register(collector); err != nil {
			return err
		}
	}
	if m.parts.keeper == nil {
		return nil
	}
	return m.parts.keeper.Register(r)
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
	read func(*reading) float64
	join func(a, b float64) float64
}

// reading is the state of one collection at one moment.
type reading struct {
	state reflector.State
	sizes collectionSizes
	rv    uint64
	now   time.Time
	mux   watchmux.Stats
	// checked is when it was last found equal to the upstream, zero while it is starting.
	checked time.Time
}

type collectionLabels struct{ group, resource, encoding string }

func newStateCollector(m *Manager) *stateCollector {
	c := &stateCollector{manager: m}
	sum := func(a, b float64) float64 { return a + b }
	lowest := func(a, b float64) float64 { return min(a, b) }
	highest := func(a, b float64) float64 { return max(a, b) }
	add := func(name, help string, kind prometheus.ValueType, join func(a, b float64) float64, read func(*reading) float64) {
		desc := prometheus.NewDesc("kubeweir_cache_"+name, help, []string{"group", "resource", "encoding"}, nil)
		c.gauges = append(c.gauges, gauge{desc: desc, kind: kind, read: read, join: join})
	}
	level, count := prometheus.GaugeValue, prometheus.CounterValue
	add("objects", "Objects held.", level, sum, func(r *reading) float64 { return float64(r.sizes.Objects) })
	add("object_bytes", "Encoded size of the objects held.", level, sum, func(r *reading) float64 { return float64(r.sizes.Bytes) })
	add("indexes", "Labels and fields that are indexed, because selectors asked for them.", level, sum, func(r *reading) float64 { return float64(r.sizes.Indexes) })
	add("snapshots", "Views retained for lists in pieces and lists of an exact version.", level, sum, func(r *reading) float64 { return float64(r.sizes.Snapshots) })
	add("snapshot_bytes", "Upper bound of what retained views keep from being freed.", level, sum, func(r *reading) float64 { return float64(r.sizes.SnapshotBytes) })
	add("query_columns", "Columns and orders kept for lists with sortBy, where or countBy.", level, sum, func(r *reading) float64 { return float64(r.sizes.columns) })
	add("query_bytes", "Upper bound of what those columns have, and keep from being freed.", level, sum, func(r *reading) float64 { return float64(r.sizes.columnBytes) })
	add("resource_version", "resourceVersion up to which the collection is current.", level, lowest, func(r *reading) float64 { return float64(r.rv) })
	add("feed_synced", "1 when the collection is complete and fed, 0 when starting, stale or stopped.", level, lowest, func(r *reading) float64 {
		if r.state.Phase == reflector.Synced {
			return 1
		}
		return 0
	})
	add("feed_lag_seconds", "Time since the feed's connection last gave a sign of life, or since the feed broke.", level, highest, (*reading).lag)
	add("history_events", "Events held for watches that begin in the past and for lists of an exact version.", level, sum, func(r *reading) float64 { return float64(r.mux.Events) })
	add("history_bytes", "Bytes that the history keeps from being freed.", level, sum, func(r *reading) float64 { return float64(r.mux.Bytes) })
	add("history_frame_bytes", "Bytes of events as they were sent, kept with the history for other watches.", level, sum, func(r *reading) float64 { return float64(r.mux.FrameBytes) })
	add("history_seconds", "Age of the oldest event held.", level, lowest, func(r *reading) float64 { return float64(r.mux.OldestAge) / 1e9 })
	add("check_age_seconds", "Time since the collection was last found equal to the upstream, or since it was first listed.", level, highest, func(r *reading) float64 {
		if r.checked.IsZero() {
			return 0
		}
		return r.now.Sub(r.checked).Seconds()
	})
	add("watchers", "Open client watches.", level, sum, func(r *reading) float64 { return float64(r.mux.Watchers) })
	add("watchers_lagging", "Client watches that have left events unread for longer than a second.", level, sum, func(r *reading) float64 { return float64(r.mux.Lagging) })
	add("deliveries_total", "Events handed to client watches.", count, sum, func(r *reading) float64 { return float64(r.mux.Deliveries) })
	add("watchers_expired_total", "Client watches that fell behind the history and ended with 410.", count, sum, func(r *reading) float64 { return float64(r.mux.Ended.Expired) })
	return c
}

// lag returns 0 for a collection that is starting.
func (r *reading) lag() float64 {
	if r.state.LastContact.IsZero() {
		return 0
	}
	return max(0, r.now.Sub(r.state.LastContact).Seconds())
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for i := range c.gauges {
		ch <- c.gauges[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	values := make(map[collectionLabels][]float64)
	for _, e := range c.manager.entries() {
		r := &reading{state: e.state(), now: time.Now()}
		if c := e.collection.Load(); c != nil {
			r.sizes, r.rv, r.mux = c.sizes(), c.RV(), c.store.Mux().Stats()
			r.checked = time.Unix(0, e.checked.Load())
		}
		labels := collectionLabels{e.resource.Group, e.resource.Resource, e.encoding.String()}
		before, joined := values[labels]
		now := make([]float64, len(c.gauges))
		for i := range c.gauges {
			now[i] = c.gauges[i].read(r)
			if joined {
				now[i] = c.gauges[i].join(before[i], now[i])
			}
		}
		values[labels] = now
	}
	for labels, v := range values {
		for i := range c.gauges {
			g := &c.gauges[i]
			ch <- prometheus.MustNewConstMetric(g.desc, g.kind, v[i], labels.group, labels.resource, labels.encoding)
		}
	}
}
