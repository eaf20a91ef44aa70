package etcd

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are an engine's. They are taken back when it is closed.
type metrics struct {
	registerer prometheus.Registerer // may be nil
	requests   *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	watches    prometheus.Gauge
	reopened   prometheus.Counter
	compacted  prometheus.Gauge
	available  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: registerer,
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_etcd_request_seconds",
			Help:    "Duration of requests to etcd, by operation.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_etcd_request_errors_total",
			Help: "Failed requests to etcd, by operation and reason. Conflicts do not count as failures.",
		}, []string{"operation", "reason"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_watches_open",
			Help: "Open watches of etcd, each with its own stream.",
		}),
		reopened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_etcd_watches_reopened_total",
			Help: "Watches of etcd that were resumed after their stream had ended.",
		}),
		compacted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_compacted_revision",
			Help: "Last known compaction revision of etcd.",
		}),
		available: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_available",
			Help: "1 while etcd responds, 0 after a request failed because it did not.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	var errs []error
	for _, c := range m.all() {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.errors, m.watches, m.reopened, m.compacted, m.available}
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all() {
		m.registerer.Unregister(c)
	}
}
