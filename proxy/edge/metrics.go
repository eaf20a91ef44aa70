package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Metrics are the metrics of one Server. Requests are counted by the handler, which classifies
// them.
type Metrics struct {
	connections   *prometheus.GaugeVec   // by listener, protocol
	accepted      *prometheus.CounterVec // by listener
	rejected      *prometheus.CounterVec // by listener, reason
	Malformed     *prometheus.CounterVec // by code
	SlowWatches   prometheus.Counter
	UnreadStreams prometheus.Counter
	Rejections    *reason.Counter
}

func newMetrics(r prometheus.Registerer) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Rejections: reason.NewCounter(r),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubeweir_connections",
			Help: "Open client connections by listener (secure, sidecar) and protocol (handshake, http/1.1, h2).",
		}, []string{"listener", "protocol"}),
		accepted: counters("kubeweir_connections_accepted_total",
			"Client connections accepted, by listener.", "listener"),
		rejected: counters("kubeweir_connections_rejected_total",
			"Client connections closed before any request, by listener and reason (limit, handshake; accept counts failed attempts to accept).", "listener", "reason"),
		Malformed: counters("kubeweir_malformed_requests_total",
			"HTTP/1.1 requests rejected before they reached the handler, by status code.", "code"),
		SlowWatches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_slow_watches_ended_total",
			Help: "Watches ended because their client did not read while its user held more than its share of buffer memory (see kubeweir_response_buffer_bytes). Watches ended by a write timeout are not included.",
		}),
		UnreadStreams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_unread_streams_reset_total",
			Help: "HTTP/2 streams reset because their user held more than its share of buffer memory: uploads and upgrades with unread data (see kubeweir_response_buffer_bytes), and responses that wait for their clients (see kubeweir_waiting_stream_bytes).",
		}),
	}
	if r != nil {
		r.MustRegister(m.connections, m.accepted, m.rejected, m.Malformed, m.SlowWatches, m.UnreadStreams)
	}
	return m
}

func listenerName(l api.Listener) string {
	if l == api.ListenerSidecar {
		return "sidecar"
	}
	return "secure"
}
