package edge

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/reason"
)

// Metrics are those of one Server. Requests are counted by the handler, which knows what
// they mean.
type Metrics struct {
	connections   *prometheus.GaugeVec   // by listener, protocol
	accepted      *prometheus.CounterVec // by listener
	rejected      *prometheus.CounterVec // by listener, reason
	Malformed     *prometheus.CounterVec // by code
	certificates  *prometheus.CounterVec // by result
	SlowWatches   prometheus.Counter
	UnreadStreams prometheus.Counter
	Rejections    *reason.Counter
}

func newMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		Rejections: reason.NewCounter(r),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubeweir_connections",
			Help: "Open client connections by listener (secure, sidecar) and protocol (handshake, http/1.1, h2).",
		}, []string{"listener", "protocol"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_connections_accepted_total",
			Help: "Client connections accepted, by listener.",
		}, []string{"listener"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_connections_rejected_total",
			Help: "Client connections closed before any request, by listener and reason (limit, handshake; accept counts attempts to accept one that failed).",
		}, []string{"listener", "reason"}),
		Malformed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_malformed_requests_total",
			Help: "HTTP/1.1 requests refused before they reached the handler, by status code.",
		}, []string{"code"}),
		certificates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_serving_certificate_reloads_total",
			Help: "Changes of the serving certificate files, by result (ok, error).",
		}, []string{"result"}),
		SlowWatches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_slow_watches_ended_total",
			Help: "Watches ended because their client did not read while its user held more than a share of the memory for such writes (see kubeweir_response_buffer_bytes); those that a write timeout ends are not among them.",
		}),
		UnreadStreams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_unread_streams_reset_total",
			Help: "Streams over HTTP/2 that were reset because their user had left more waiting than a share of the memory for that: uploads and upgrades, of what nobody has read (see kubeweir_response_buffer_bytes), and answers that wait for their clients (see kubeweir_waiting_stream_bytes).",
		}),
	}
	for _, result := range [...]string{"ok", "error"} {
		m.certificates.WithLabelValues(result) // so that the first is a change, too
	}
	if r != nil {
		r.MustRegister(m.connections, m.accepted, m.rejected, m.Malformed, m.certificates, m.SlowWatches, m.UnreadStreams)
	}
	return m
}

// registerCertificate shows how long the serving certificate is valid. 0 is none.
func registerCertificate(r prometheus.Registerer, get getCertificate) {
	registerGauge(r, "kubeweir_serving_certificate_expiry_timestamp_seconds", "When the serving certificate ends.", func() float64 {
		cert, err := get(&tls.ClientHelloInfo{})
		if err != nil || cert.Leaf == nil {
			return 0
		}
		return float64(cert.Leaf.NotAfter.Unix())
	})
}

// registerState shows how much of the server's limits is in use.
func (s *Server) registerState(r prometheus.Registerer) {
	constant := func(n int) func() float64 { return func() float64 { return float64(n) } }
	registerGauge(r, "kubeweir_connections_limit",
		"The most client connections before more are closed at once: what is configured, or half of the files that the process may open.", constant(s.maxConnections))
	registerGauge(r, "kubeweir_response_buffer_bytes",
		"Bytes of buffers held by responses that are being written, most of which wait for their clients, and by what was sent over HTTP/2 and not read yet.", func() float64 { return float64(s.Buffers.held.Load()) })
	registerGauge(r, "kubeweir_response_buffer_bytes_limit",
		"The most bytes of such buffers. A user who holds more than three times what is free, and more than 1 MiB, has watches ended whose clients do not read.", constant(BufferBudget))
	registerGauge(r, "kubeweir_waiting_stream_bytes",
		"About the bytes taken by answers over HTTP/2 that wait until their clients open a window or read, 8 KiB each and what a large header takes.", func() float64 { return float64(s.Buffers.waiting.Load()) })
	registerGauge(r, "kubeweir_waiting_stream_bytes_limit",
		"The most of that. A user who has more than three times what is free, and more than 1 MiB, gets no more answers but those that can be sent at once; clients whose user is not known have an eighth.", constant(WaitingAllowed))
}

func registerGauge(r prometheus.Registerer, name, help string, value func() float64) {
	if r != nil {
		r.MustRegister(gaugefunc.New(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
}

func listenerName(l api.Listener) string {
	if l == api.ListenerSidecar {
		return "sidecar"
	}
	return "secure"
}
