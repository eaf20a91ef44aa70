package upstream

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// purpose is the purpose of a request to the upstream.
type purpose string

const (
	forClient      purpose = "client"      // forwarded with the client's own token
	forIdentity    purpose = "impersonate" // forwarded by impersonation
	forOwn         purpose = "own"         // forwarded as the gateway itself
	forList        purpose = "list"
	forVersionList purpose = "version-list"
	forWatch       purpose = "watch"
	forVersion     purpose = "version"
	forDiscovery   purpose = "discovery"
	forReview      purpose = "review"
)

// urgent reports whether a client waits for the response to such a request of the gateway's own.
// The others are tried also while the upstream is silent.
func (p purpose) urgent() bool { return p == forVersionList || p == forVersion }

// purposes are all of them.
var purposes = [...]purpose{forClient, forIdentity, forOwn, forList, forVersionList, forWatch, forVersion, forDiscovery, forReview}

type metrics struct {
	requests   *prometheus.CounterVec
	received   map[purpose]prometheus.Counter // bytes
	durations  *prometheus.HistogramVec
	broken     *prometheus.CounterVec
	upgrades   prometheus.Gauge
	streams    prometheus.Gauge
	reloads    *prometheus.CounterVec
	rejections *reason.Counter
	servers    *balance.Metrics
}

func newMetrics(reg prometheus.Registerer, d *health.Detector, missingRights prometheus.Collector) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	opts := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	bytes := counter("kubeweir_upstream_response_bytes_total", "Bytes of the upstream's response bodies as received (compressed or not), by purpose.", "purpose")
	m := &metrics{
		rejections: reason.NewCounter(reg),
		servers:    balance.NewMetrics(),
		requests:   counter("kubeweir_upstream_requests_total", "Requests to the upstream by purpose, method and status code; code is 0 without a response.", "purpose", "method", "code"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_upstream_response_seconds",
			Help:    "Time from sending a request upstream to the head of its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"purpose", "method"}),
		broken:   counter("kubeweir_upstream_broken_responses_total", "Forwarded responses whose body broke off.", "purpose"),
		received: make(map[purpose]prometheus.Counter),
		upgrades: prometheus.NewGauge(opts("kubeweir_upstream_upgraded_connections", "Open upgraded connections (exec, attach, port-forward, WebSockets other than watches served from the cache).")),
		streams:  prometheus.NewGauge(opts("kubeweir_upstream_streams", "Open forwarded long-running responses (watch, log follow, proxy).")),
		reloads:  counter("kubeweir_upstream_certificate_reloads_total", "Reloads of the kubeconfig's CA and client certificate files after a change, by result: ok, error (the old ones stay in use).", "result"),
	}
	for _, p := range purposes {
		m.received[p] = bytes.WithLabelValues(string(p))
	}
	for _, p := range [...]purpose{forClient, forIdentity, forOwn} {
		m.broken.WithLabelValues(string(p)) // so that the first is a change, too
	}
	for _, result := range [...]string{"ok", "error"} {
		m.reloads.WithLabelValues(result)
	}
	if reg == nil {
		return m, nil
	}
	err := m.servers.Register(reg)
	for _, c := range []prometheus.Collector{
		m.requests, m.durations, bytes, m.broken, m.upgrades, m.streams, m.reloads, missingRights,
		gaugefunc.New(opts("kubeweir_upstream_feed_connections", "Connections to the upstream that carry watches of the cache."),
			func() float64 { return float64(d.Conns().Feeds()) }),
		gaugefunc.New(opts("kubeweir_upstream_last_contact_timestamp_seconds", "Time of the last data or heartbeat on the feed connections; of several connections the least recent counts. 0 before the first."),
			func() float64 { return seconds(d.Conns().LastContact()) }),
		gaugefunc.New(opts("kubeweir_upstream_delay_seconds", "Lag of the feeds: the delay of data from the upstream, measured by heartbeats and pings on the feed connections. From 1 s on, responses from the cache state their age."),
			func() float64 { return d.LinkLag().Seconds() }),
		gaugefunc.New(opts("kubeweir_upstream_gone", "1 while nothing arrives from the upstream, so that requests that need it are rejected with 503 at once; 0 while it refuses connections, which fails requests just as fast."),
			func() float64 {
				if d.State() == health.Silent {
					return 1
				}
				return 0
			}),
	} {
		if err == nil {
			err = reg.Register(c)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("upstream metrics: %w", err)
	}
	return m, nil
}

// seconds is a time in a metric, 0 if it is zero.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

// responded counts a request; code is 0 without a response.
func (m *metrics) responded(p purpose, method string, code int, took time.Duration) {
	method = knownMethod(method)
	m.requests.WithLabelValues(string(p), method, strconv.Itoa(api.KnownStatus(code))).Inc()
	if code != 0 {
		m.durations.WithLabelValues(string(p), method).Observe(took.Seconds())
	}
}

// knownMethod prevents clients from inventing label values.
func knownMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return method
	}
	return "other"
}
