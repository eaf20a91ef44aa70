package cache

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// metrics are the counters of all collections of a Manager, which they outlive, or those of one
// collection. Their labels are group, resource and encoding, never a namespace, name or version.
type metrics struct {
	restarts    *prometheus.CounterVec // by reason
	events      *prometheus.CounterVec // by type
	fresh       *prometheus.CounterVec // by way
	checks      *prometheus.CounterVec // by result
	differences *prometheus.CounterVec // by difference
	backfills   *prometheus.CounterVec // by result
	backfilled  *prometheus.CounterVec // events
	syncSeconds prometheus.ObserverVec
	rejected    prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, label, help string) *prometheus.CounterVec {
		labels := []string{"group", "resource", "encoding", label}
		if label == "" {
			labels = labels[:3]
		}
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeweir_cache_" + name, Help: help}, labels)
	}
	return &metrics{
		restarts:    counter("feed_restarts_total", "reason", "Upstream watches of reflectors that ended, by reason."),
		events:      counter("feed_events_total", "type", "Events received from upstream watches, by type; bookmarks and initial lists are not counted."),
		fresh:       counter("fresh_rounds_total", "way", "Freshness checks by how the cache reached the upstream's current version: held (it was there), fed (by the watch within 20 ms), listed (versions listed), probed (by a second watch), failed, immediate (by an upstream in this process, without a request)."),
		checks:      counter("checks_total", "result", "Comparisons of a collection with the upstream at one version, by result: same, differs, unfinished (the upstream was unreachable, or the watch lagged)."),
		differences: counter("differences_total", "difference", "Objects in which a collection differed from the upstream, at most 20 per comparison: missing, extra, version (different version), bytes (same version, different bytes). The collection is relisted."),
		backfills:   counter("backfills_total", "result", "Attempts to extend the history backwards for watches from before it, by result: done, expired (the upstream no longer has the version, or the objects at it), full (the history has no room), failed (the upstream sent no bookmark, or was not in contact), abandoned (all clients disconnected). Without done, the watches are forwarded, or get 410."),
		backfilled:  counter("backfilled_events_total", "", "Older events that were added to the history for watches from before it."),
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubeweir_cache_start_seconds",
			Help:    "Time from the first use of a collection until it was synced.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"group", "resource", "encoding"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_cache_start_rejected_total",
			Help: "Requests rejected with 429 because too many waited for collections to sync.",
		}),
	}
}

// of returns the metrics of one collection.
func (m *metrics) of(res *source.Resource, enc api.Encoding) *metrics {
	labels := prometheus.Labels{"group": res.Group, "resource": res.Resource, "encoding": enc.String()}
	checks := m.checks.MustCurryWith(labels)
	for _, result := range []selfcheck.Result{selfcheck.Same, selfcheck.Differs, selfcheck.Unfinished} {
		checks.WithLabelValues(result.String()) // so that the first one is a change
	}
	syncSeconds := m.syncSeconds.MustCurryWith(labels)
	syncSeconds.WithLabelValues() // likewise
	return &metrics{
		restarts:    m.restarts.MustCurryWith(labels),
		events:      m.events.MustCurryWith(labels),
		fresh:       m.fresh.MustCurryWith(labels),
		checks:      checks,
		differences: m.differences.MustCurryWith(labels),
		backfills:   m.backfills.MustCurryWith(labels),
		backfilled:  m.backfilled.MustCurryWith(labels),
		syncSeconds: syncSeconds,
	}
}
