package visible

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// visibleMetrics count the reviews for sets of visible namespaces.
type visibleMetrics struct{ read, recheck prometheus.Observer }

func newVisibleMetrics(reg prometheus.Registerer) visibleMetrics {
	reviews := review.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubeweir_authorization_visible_reviews",
		Help:    "Reviews made together for rules with visibleLists, by what for: a list or a watch that begins and waits for them (read), or open watches, a few namespaces of a set at a time (recheck). The sum is their number.",
		Buckets: prometheus.ExponentialBuckets(1, 10, 6),
	}, []string{"for"}))
	return visibleMetrics{reviews.WithLabelValues("read"), reviews.WithLabelValues("recheck")}
}

func (m visibleMetrics) count(t terms, reviews float64) {
	switch {
	case reviews == 0:
	case t.paced:
		m.recheck.Observe(reviews)
	default:
		m.read.Observe(reviews)
	}
}
