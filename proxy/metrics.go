package proxy

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/response"
)

// metrics counts requests. Label values are verbs and the cluster's resources, never arbitrary
// input: names that discovery does not have get no label.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
	// forwarded counts reads by reason.Forward.
	forwarded []prometheus.Counter
	stale     prometheus.Counter
	// known returns discovery's spelling of a resource that it knows.
	known func(schema.GroupVersionResource) (schema.GroupResource, bool)

	// children caches the metrics of each label set, so that a request does not hash its labels
	// three times. At most maxLabelSets; their strings are not the requests' own.
	mu       sync.RWMutex
	children map[requestLabels]*requestMetrics
}

type requestLabels struct {
	verb, group, resource string
	source                response.Source
	code                  int
}

type requestMetrics struct {
	requests prometheus.Counter
	duration prometheus.Observer
	bytes    prometheus.Counter
}

// maxLabelSets bounds the label sets, for clusters whose resources come and go. Further ones are
// counted as "other".
const maxLabelSets = 4096

const otherLabel = "other"

func newMetrics(registerer prometheus.Registerer, known func(schema.GroupVersionResource) (schema.GroupResource, bool)) *metrics {
	labels := []string{"verb", "group", "resource", "source", "code"}
	m := &metrics{
		known: known,
		stale: newStaleCounter(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_requests_total",
			Help: "Requests by verb, resource, status code and source of the response: cached (without the upstream), revalidated (from the cache, after the upstream listed the current versions), collapsed (coalesced with identical requests into one upstream request; see kubeweir_collapsed_shared_total), forwarded (sent to the upstream as the client), gateway (by the gateway itself: rejections, health).",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_request_duration_seconds",
			Help:    "Time from a request's header to the end of its response, including the time in which the client reads it. Watches are not included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb", "group", "resource", "source"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_response_bytes_total",
			Help: "Bytes of response bodies as sent to clients (compressed or not), by verb, resource and source of the response.",
		}, []string{"verb", "group", "resource", "source"}),
		children: make(map[requestLabels]*requestMetrics),
	}
	forwarded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_forwarded_reads_total",
		Help: "Gets, lists and watches of resources that were forwarded instead of being served from the cache or coalesced, by reason (docs/reasons.md).",
	}, []string{"reason"})
	m.forwarded = make([]prometheus.Counter, len(reason.Forwards())+1)
	for _, why := range reason.Forwards() {
		m.forwarded[why] = forwarded.WithLabelValues(why.String())
	}
	if registerer != nil {
		registerer.MustRegister(m.requests, m.duration, m.bytes, m.stale, forwarded)
	}
	gaugefunc.Register(registerer, "kubeweir_request_label_sets", "Label sets of the request metrics; above 4096 further ones are \"other\".", func() int {
		m.mu.RLock()
		defer m.mu.RUnlock()
		return len(m.children)
	})
	return m
}

// observe counts a finished request.
func (m *metrics) observe(x *exchange, code int, n int64) {
	c := m.of(x.Info, x.source, code)
	c.requests.Inc()
	c.bytes.Add(float64(n))
	if x.Info.Verb != "watch" {
		c.duration.Observe(time.Since(x.began).Seconds())
	}
}

// of returns the metrics of a request, whose names are replaced by discovery's.
//
// It creates them without holding mu: a vector is locked while a scrape collects it, and requests
// whose labels are known must not wait for that. Concurrent calls may exceed maxLabelSets by their
// number.
func (m *metrics) of(info *api.RequestInfo, from response.Source, code int) *requestMetrics {
	l := requestLabels{verb: verbLabel(info.Verb), source: from, code: api.KnownStatus(code)}
	if info.IsResourceRequest {
		gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
		if gr, ok := m.known(gvr); ok {
			l.group, l.resource = gr.Group, gr.Resource
		}
	}
	m.mu.RLock()
	c, full := m.children[l], len(m.children) >= maxLabelSets
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	if full {
		l = requestLabels{verb: otherLabel, group: otherLabel, resource: otherLabel, source: l.source, code: l.code / 100 * 100}
		m.mu.RLock()
		c = m.children[l]
		m.mu.RUnlock()
		if c != nil {
			return c
		}
	}
	c = &requestMetrics{
		requests: m.requests.WithLabelValues(l.verb, l.group, l.resource, string(l.source), strconv.Itoa(l.code)),
		duration: m.duration.WithLabelValues(l.verb, l.group, l.resource, string(l.source)),
		bytes:    m.bytes.WithLabelValues(l.verb, l.group, l.resource, string(l.source)),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.children[l] = c
	return c
}

// verbLabel returns one of a few constants.
func verbLabel(verb string) string {
	for _, known := range [...]string{
		"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		"post", "put", "head", "options", "proxy", "",
	} {
		if verb == known {
			return known
		}
	}
	return otherLabel
}
