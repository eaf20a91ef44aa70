package cache

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
)

// metrics are the counters of all collections of a Manager, which they outlive. Their labels are
// group, resource and encoding, never a namespace, name or version.
type metrics struct {
	restarts, events, fresh *prometheus.CounterVec
	syncSeconds             *prometheus.HistogramVec
	refused                 prometheus.Counter
	checks, differences     *prometheus.CounterVec
}

// collectionMetrics are those of one collection.
type collectionMetrics struct {
	feed        reflector.Metrics
	fresh       *prometheus.CounterVec // by way
	syncSeconds prometheus.Observer
}

func newMetrics() *metrics {
	return &metrics{
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_feed_restarts_total",
			Help: "Ends of the upstream watches that feed the cache, by reason.",
		}, []string{"group", "resource", "encoding", "reason"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_feed_events_total",
			Help: "Events received from upstream watches, by type; bookmarks and initial lists are not counted.",
		}, []string{"group", "resource", "encoding", "type"}),
		fresh: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_fresh_rounds_total",
			Help: "Rounds that asked the upstream for its version, by how the cache reached that: held, fed (within 20 ms), listed (by the names of its objects), probed (by a watch), failed; told by an upstream in this process, which needs no round.",
		}, []string{"group", "resource", "encoding", "way"}),
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_cache_start_seconds",
			Help:    "Time from the first use of a collection until it was complete.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"group", "resource", "encoding"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_checks_total",
			Help: "Comparisons of a collection with the upstream at one version, by result: same, differs, unfinished (the upstream did not answer, or the feed was late).",
		}, []string{"group", "resource", "encoding", "result"}),
		differences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_differences_total",
			Help: "Objects, at most 20 a check, in which a collection was found to differ from the upstream: missing, extra, version (another one), bytes (others of the same version). The collection is listed anew.",
		}, []string{"group", "resource", "encoding", "difference"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_cache_start_refused_total",
			Help: "Requests told to retry (429) because too many waited for collections that were starting.",
		}),
	}
}

func (m *metrics) collection(res *source.Resource, enc api.Encoding) collectionMetrics {
	labels := prometheus.Labels{"group": res.Group, "resource": res.Resource, "encoding": enc.String()}
	for _, result := range []selfcheck.Result{selfcheck.Same, selfcheck.Differs, selfcheck.Unfinished} {
		m.checks.With(prometheus.Labels{"group": res.Group, "resource": res.Resource, "encoding": enc.String(), "result": result.String()}) // so that the first one is a change
	}
	return collectionMetrics{
		feed:        reflector.Metrics{Restarts: m.restarts.MustCurryWith(labels), Events: m.events.MustCurryWith(labels)},
		fresh:       m.fresh.MustCurryWith(labels),
		syncSeconds: m.syncSeconds.With(labels),
	}
}
