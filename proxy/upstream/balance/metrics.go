package balance

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of several servers, by the host and port of each.
type Metrics struct {
	up, preferred, outstanding   *prometheus.GaugeVec
	requests, ejections, retries *prometheus.CounterVec
}

// serverMetrics are the metrics of one server.
type serverMetrics struct {
	up, preferred, outstanding   prometheus.Gauge
	requests, ejections, retries prometheus.Counter
}

// NewMetrics returns the metrics, which Register exposes.
func NewMetrics() *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"server"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"server"})
	}
	return &Metrics{
		up:          gauge("kubeweir_upstream_server_up", "1 while the API server is ready, 0 while it is not ready or unreachable. Only with --upstream-servers, like all metrics of a server."),
		preferred:   gauge("kubeweir_upstream_server_preferred", "1 for the API server that the feeds of the cache use."),
		outstanding: gauge("kubeweir_upstream_server_outstanding_requests", "Open requests, watches and connections to the API server."),
		requests:    counter("kubeweir_upstream_server_requests_total", "Requests sent to the API server, including those that were then sent to another."),
		ejections:   counter("kubeweir_upstream_server_ejections_total", "How often the API server was taken out of use because it was not ready, unreachable or unresponsive."),
		retries:     counter("kubeweir_upstream_server_retries_total", "Requests that the API server did not receive, or reads that it did not respond to, and that were sent to another."),
	}
}

// vector is a metric with labels.
type vector interface {
	prometheus.Collector
	DeleteLabelValues(labels ...string) bool
}

func (m *Metrics) all() []vector {
	return []vector{m.up, m.preferred, m.outstanding, m.requests, m.ejections, m.retries}
}

// Register exposes the metrics.
func (m *Metrics) Register(reg prometheus.Registerer) error {
	for _, c := range m.all() {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *Metrics) of(server string) serverMetrics {
	return serverMetrics{
		m.up.WithLabelValues(server), m.preferred.WithLabelValues(server), m.outstanding.WithLabelValues(server),
		m.requests.WithLabelValues(server), m.ejections.WithLabelValues(server), m.retries.WithLabelValues(server),
	}
}

// forget removes the metrics of a server that is none any more.
func (m *Metrics) forget(server string) {
	for _, c := range m.all() {
		c.DeleteLabelValues(server)
	}
}
