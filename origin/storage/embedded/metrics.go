package embedded

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// metrics are the metrics of an engine, as one prometheus.Collector.
type metrics struct {
	registerer prometheus.Registerer // nil: not registered
	all        []prometheus.Collector

	groups      prometheus.Histogram
	latency     prometheus.Histogram
	compactions prometheus.Counter
	expired     prometheus.Counter
	disk        atomic.Uint64 // bytes on disk when they could be read last
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{
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
	m.all = []prometheus.Collector{m.groups, m.latency, m.compactions, m.expired}
	add := func(name, help string, read func() float64) {
		m.all = append(m.all, gaugefunc.New(prometheus.GaugeOpts{Name: "kubeweir_store_" + name, Help: help}, read))
	}
	visible := func(name, help string, read func() uint64) {
		add(name, help, func() float64 {
			e.mu.RLock()
			defer e.mu.RUnlock()
			return float64(read())
		})
	}
	visible("revision", "Revision of the latest change.", func() uint64 { return e.mu.revision })
	visible("compacted_revision", "Oldest revision from which reads and watches are possible.", func() uint64 { return e.mu.compacted })
	visible("keys", "Objects in the store.", func() uint64 { return uint64(e.mu.index.tree.Len()) })
	visible("index_bytes", "Bytes of memory for the key index.", func() uint64 { return uint64(e.mu.index.size()) })
	visible("watchers", "Open watches of the store, by the cache, admission and RBAC.", func() uint64 { return uint64(len(e.mu.watchers)) })
	add("queued_changes", "Changes waiting for the disk.", func() float64 { return float64(e.queue.len()) })
	add("disk_bytes", "Bytes of the store on disk, without the reserve. While no changes are accepted, the last known value.", e.diskBytes)
	add("disk_free_bytes", "Free bytes on the disk of the data directory; +Inf if unknown.", func() float64 {
		usage, err := e.guard.GetDiskUsage(e.dir)
		if err != nil {
			return math.Inf(1)
		}
		return float64(usage.AvailBytes)
	})
	add("reserve_spent", "1 while the disk is so full that creations are rejected, because the reserved space was released for deletions or cannot be allocated.", func() float64 {
		return oneIf(e.guard.noRoom() != nil)
	})
	add("available", "1 while changes are accepted, 0 while the disk has failed or is full (deletions may still be accepted).", func() float64 {
		return oneIf(e.Err() == nil && e.guard.noRoom() == nil)
	})
	return m
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// diskBytes returns the size on disk. While changes are rejected it is the last known one, as a
// write that is parked in Pebble may hold the lock that reading takes.
func (e *Engine) diskBytes() float64 {
	if release, err := e.use(); err == nil {
		defer release()
		if e.Err() == nil {
			e.metrics.disk.Store(e.db.Metrics().DiskSpaceUsage())
		}
	}
	return float64(e.metrics.disk.Load())
}

func (m *metrics) commit(changes int, took time.Duration) {
	m.groups.Observe(float64(changes))
	m.latency.Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
}
