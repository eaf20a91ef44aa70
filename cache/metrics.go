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
			Help: "Upstream watches of reflectors that ended, by reason.",
		}, []string{"group", "resource", "encoding", "reason"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_feed_events_total",
			Help: "Events received from upstream watches, by type; bookmarks and initial lists are not counted.",
		}, []string{"group", "resource", "encoding", "type"}),
		fresh: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_fresh_rounds_total",
			Help: "Freshness checks by how the cache reached the upstream's current version: held (it was there), fed (by the watch within 20 ms), listed (versions listed), probed (by a second watch), failed, told (by an upstream in this process, without a request).",
		}, []string{"group", "resource", "encoding", "way"}),
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_cache_start_seconds",
			Help:    "Time from the first use of a collection until it was synced.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"group", "resource", "encoding"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_checks_total",
			Help: "Comparisons of a collection with the upstream at one version, by result: same, differs, unfinished (the upstream was unreachable, or the watch lagged).",
		}, []string{"group", "resource", "encoding", "result"}),
		differences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_cache_differences_total",
			Help: "Objects in which a collection differed from the upstream, at most 20 per comparison: missing, extra, version (different version), bytes (same version, different bytes). The collection is relisted.",
		}, []string{"group", "resource", "encoding", "difference"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_cache_start_refused_total",
			Help: "Requests rejected with 429 because too many waited for collections to sync.",
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
