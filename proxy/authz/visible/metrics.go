package visible

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// metrics observes the reviews for sets.
type metrics struct{ read, recheck prometheus.Observer }

func newMetrics(reg prometheus.Registerer, sets *setCache) metrics {
	locked := func(value func() int) func() int {
		return func() int {
			sets.mu.Lock()
			defer sets.mu.Unlock()
			return value()
		}
	}
	gaugefunc.Register(reg, "kubeweir_authorization_visible_sets",
		"Sets of namespaces cached for rules with visibleLists: one per user and kind of list.",
		locked(func() int { return len(sets.mu.sets) }))
	gaugefunc.Register(reg, "kubeweir_authorization_visible_namespaces",
		"Namespace names in cached sets and in those of open watches. Equal sets of a user count once; each set counts as a few extra names.",
		locked(func() int { return sets.mu.cost }))
	gaugefunc.Register(reg, "kubeweir_authorization_visible_namespaces_limit",
		"Limit on those names; a user may have a quarter of it.", func() int { return sets.max })
	reviews := review.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubeweir_authorization_visible_reviews",
		Help:    "Batches of reviews for rules with visibleLists, by purpose: a list or watch that waits for them (read), or open watches, a few namespaces at a time (recheck). The sum is the number of reviews.",
		Buckets: prometheus.ExponentialBuckets(1, 10, 6),
	}, []string{"for"}))
	return metrics{reviews.WithLabelValues("read"), reviews.WithLabelValues("recheck")}
}

func (m metrics) count(t terms, reviews float64) {
	switch {
	case reviews == 0:
	case t.paced:
		m.recheck.Observe(reviews)
	default:
		m.read.Observe(reviews)
	}
}
