package proxy

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests. The label sets are resources and verbs of the
// cluster, never names or namespaces of objects.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	bytes    *prometheus.CounterVec

	// children keeps the metrics of a label set at hand, so that a request does
	// not hash its labels three times.
	mu       sync.RWMutex
	children map[requestLabels]*requestMetrics
}

type requestLabels struct {
	verb, group, resource string
	source                source
	code                  int
}

type requestMetrics struct {
	requests prometheus.Counter
	duration prometheus.Observer
	bytes    prometheus.Counter
}

// maxLabelSets bounds the label sets: a client can ask for resources that do
// not exist, and those must not grow the process. Beyond it they are "other".
const maxLabelSets = 10_000

func newMetrics(registerer prometheus.Registerer) *metrics {
	labels := []string{"verb", "group", "resource", "source", "code"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_requests_total",
			Help: "Requests by verb, resource, where the answer came from (cached, collapsed, forwarded, gateway) and status code.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_request_duration_seconds",
			Help:    "Time from a request's header to the end of its response; watches are left out.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb", "group", "resource", "source"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_response_bytes_total",
			Help: "Bytes of response bodies.",
		}, []string{"verb", "group", "resource", "source"}),
		children: make(map[requestLabels]*requestMetrics),
	}
	if registerer != nil {
		registerer.MustRegister(m.requests, m.duration, m.bytes)
	}
	return m
}

// watchLimits shows how much of the limits is in use.
func watchLimits(registerer prometheus.Registerer, gauges map[string]*gauge) {
	if registerer == nil {
		return
	}
	for kind, g := range gauges {
		labels := prometheus.Labels{"kind": kind}
		registerer.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight", ConstLabels: labels,
				Help: "Requests under way; long ones are watches, followed logs and upgraded connections, resumed ones the watches among them that the upstream continues from before the cache's history.",
			}, func() float64 { return float64(g.now.Load()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "kubeweir_requests_in_flight_limit", ConstLabels: labels,
				Help: "The most requests under way before more are refused; 0 is no limit.",
			}, func() float64 { return float64(g.max) }),
		)
	}
}

// observe counts one finished request.
func (m *metrics) observe(x *exchange, code int, n int64) {
	l := requestLabels{verb: x.info.Verb, source: x.source, code: code}
	// Whatever the cache or the upstream answers exists; other names a client may
	// have made up.
	if x.info.IsResourceRequest && (code != 404 || x.source == fromCache) {
		l.group, l.resource = x.info.APIGroup, x.info.Resource
	}
	c := m.child(l)
	c.requests.Inc()
	c.bytes.Add(float64(n))
	if x.info.Verb != "watch" {
		c.duration.Observe(time.Since(x.began).Seconds())
	}
}

func (m *metrics) child(l requestLabels) *requestMetrics {
	m.mu.RLock()
	c := m.children[l]
	full := len(m.children) >= maxLabelSets
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	if full {
		l = requestLabels{verb: "other", group: "other", resource: "other", source: l.source, code: l.code}
	}
	c = &requestMetrics{
		requests: m.requests.WithLabelValues(l.verb, l.group, l.resource, string(l.source), strconv.Itoa(l.code)),
		duration: m.duration.WithLabelValues(l.verb, l.group, l.resource, string(l.source)),
		bytes:    m.bytes.WithLabelValues(l.verb, l.group, l.resource, string(l.source)),
	}
	m.mu.Lock()
	m.children[l] = c
	m.mu.Unlock()
	return c
}
