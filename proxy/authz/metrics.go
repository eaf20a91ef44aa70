package authz

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// metrics counts decisions by where they come from.
type metrics struct {
	reviewed, cached, offline decisionCounters
	failed, invalidations     prometheus.Counter
}

type decisionCounters struct{ allowed, denied prometheus.Counter }

func (c *decisionCounters) count(allowed bool) {
	if allowed {
		c.allowed.Inc()
	} else {
		c.denied.Inc()
	}
}

func newMetrics(reg prometheus.Registerer, cached, offline func() int, limit int) *metrics {
	reviews := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_reviews_total",
		Help: "Authorization decisions by result (allowed, denied, error) and by where they come from: upstream, cache, or offline (its last decision or the RBAC objects in the cache, because the upstream is unavailable).",
	}, []string{"result", "from"}))
	counters := func(from string) decisionCounters {
		return decisionCounters{reviews.WithLabelValues("allowed", from), reviews.WithLabelValues("denied", from)}
	}
	gaugefunc.Register(reg, "kubeweir_authorization_cache_entries", "Cached authorization decisions.", cached)
	gaugefunc.Register(reg, "kubeweir_authorization_offline_entries",
		"Decisions of the upstream retained for outages: permissions among the cached ones, and as many denials at most; 0 if offline mode is off.", offline)
	gaugefunc.Register(reg, "kubeweir_authorization_cache_entries_limit",
		"Limit on cached authorization decisions; further ones evict others.", func() int { return limit })
	return &metrics{
		reviewed: counters("upstream"), cached: counters("cache"), offline: counters("offline"),
		failed: reviews.WithLabelValues("error", "upstream"),
		invalidations: review.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_authorization_invalidations_total",
			Help: "How often all cached decisions were dropped because an RBAC object changed.",
		})),
	}
}
