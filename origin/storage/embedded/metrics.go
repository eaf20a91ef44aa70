package embedded

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is a prometheus.Collector of one engine.
type metrics struct {
	engine     *Engine
	registerer prometheus.Registerer // nil: not registered

	groups      prometheus.Histogram
	latency     prometheus.Histogram
	compactions prometheus.Counter
	expired     prometheus.Counter
	gauges      []gauge
	// disk is what the store took on disk when that could be found out last.
	disk atomic.Uint64
}

// A gauge is read when it is asked for.
type gauge struct {
	desc *prometheus.Desc
	read func(*state) float64
}

// state is what the gauges are read from.
type state struct {
	revision, compacted        uint64
	keys, indexBytes, watchers int
	ringBytes                  int
	waiting                    int
	disk                       uint64
	free                       float64 // infinite when it is not known
	available, low             bool
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{
		engine: e,
		groups: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeweir_store_commit_changes", Help: "Changes made durable per write to disk.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeweir_store_commit_seconds", Help: "Time to make a group of changes durable and visible.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		compactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_store_compactions_total", Help: "Compactions of the history.",
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_store_expired_total", Help: "Keys deleted because they expired.",
		}),
	}
	add := func(name, help string, read func(*state) float64) {
		m.gauges = append(m.gauges, gauge{
			desc: prometheus.NewDesc("kubeweir_store_"+name, help, nil, nil),
			read: read,
		})
	}
	add("revision", "Revision of the latest change.", func(s *state) float64 { return float64(s.revision) })
	add("compacted_revision", "Oldest revision from which reads and watches are possible.", func(s *state) float64 { return float64(s.compacted) })
	add("keys", "Objects in the store.", func(s *state) float64 { return float64(s.keys) })
	add("index_bytes", "Bytes of memory for the key index.", func(s *state) float64 { return float64(s.indexBytes) })
	add("ring_bytes", "Bytes of recent changes in memory, for watches.", func(s *state) float64 { return float64(s.ringBytes) })
	add("watchers", "Open watches of the store, by the cache, admission and RBAC.", func(s *state) float64 { return float64(s.watchers) })
	add("queued_changes", "Changes waiting for the disk.", func(s *state) float64 { return float64(s.waiting) })
	add("disk_bytes", "Bytes of the store on disk, without the reserve. While no changes are accepted, the last known value.", func(s *state) float64 { return float64(s.disk) })
	add("disk_free_bytes", "Free bytes on the disk of the data directory; +Inf if unknown.", func(s *state) float64 { return s.free })
	add("reserve_spent", "1 while the disk is so full that creations are rejected, because the reserved space was released for deletions or cannot be allocated.", func(s *state) float64 {
		if s.low {
			return 1
		}
		return 0
	})
	add("available", "1 while changes are accepted, 0 while the disk has failed or is full (deletions may still be accepted).", func(s *state) float64 {
		if s.available && !s.low {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) commit(changes int, took time.Duration) {
	m.groups.Observe(float64(changes))
	m.latency.Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.groups.Describe(ch)
	m.latency.Describe(ch)
	m.compactions.Describe(ch)
	m.expired.Describe(ch)
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.groups.Collect(ch)
	m.latency.Collect(ch)
	m.compactions.Collect(ch)
	m.expired.Collect(ch)
	s, err := m.engine.state()
	if err != nil { // closed
		return
	}
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.read(s))
	}
}

func (e *Engine) state() (*state, error) {
	release, err := e.use()
	if err != nil {
		return nil, err
	}
	defer release()
	s := &state{available: e.Err() == nil, low: e.guard.noRoom() != nil, free: math.Inf(1)}
	if s.available { // Pebble's lock may be held for ever by what is parked
		e.metrics.disk.Store(e.db.Metrics().DiskSpaceUsage())
	}
	s.disk = e.metrics.disk.Load()
	if usage, err := e.guard.GetDiskUsage(e.dir); err == nil {
		s.free = float64(usage.AvailBytes)
	}
	e.queue.mu.Lock()
	s.waiting = len(e.queue.mu.changes)
	e.queue.mu.Unlock()
	e.mu.RLock()
	defer e.mu.RUnlock()
	s.revision, s.compacted = e.mu.revision, e.mu.compacted
	s.keys, s.indexBytes = e.mu.index.tree.Len(), e.mu.index.size()
	s.ringBytes, s.watchers = e.mu.ring.bytes, e.mu.watchers.count
	return s, nil
}
