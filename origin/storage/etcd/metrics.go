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
			Help:    "Time of requests to etcd, by operation.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_etcd_request_errors_total",
			Help: "Requests to etcd that failed, by operation and reason. Conflicts are answers, not failures.",
		}, []string{"operation", "reason"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_watches_open",
			Help: "Watches of etcd that are open; each is a stream of its own.",
		}),
		reopened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_etcd_watches_reopened_total",
			Help: "Times that a watch of etcd was resumed after its stream had ended.",
		}),
		compacted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_compacted_revision",
			Help: "Revision that etcd was compacted at, as far as this process knows.",
		}),
		available: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_etcd_available",
			Help: "1 while etcd answers, 0 since a request to it failed because it did not.",
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
