package authz

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
)

type authorizationMetrics struct {
	allowed, denied, failed       prometheus.Counter // asked of the upstream
	allowedCached, deniedCached   prometheus.Counter
	allowedOffline, deniedOffline prometheus.Counter
	invalidations                 prometheus.Counter
}

func newAuthorizationMetrics(reg prometheus.Registerer, size, lastWords func() int, most int) *authorizationMetrics {
	reviews := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_reviews_total",
		Help: "Permissions decided, by result (allowed, denied, error) and by where the answer came from: the upstream, the cache, or, because the upstream could not be asked, its last word or the RBAC objects in the cache (offline).",
	}, []string{"result", "from"}))
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_cache_entries",
		Help: "Decisions that are remembered.",
	}, func() float64 { return float64(size()) }))
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_offline_entries",
		Help: "Decisions of the upstream that are remembered for the time in which it cannot be asked, at most as many as kubeweir_authorization_cache_entries_limit; 0 where nobody is served offline.",
	}, func() float64 { return float64(lastWords()) }))
	review.RegisterLimit(reg, "kubeweir_authorization_cache_entries_limit", "The most decisions that are remembered; further ones push others out.", most)
	return &authorizationMetrics{
		allowed:        reviews.WithLabelValues("allowed", "upstream"),
		denied:         reviews.WithLabelValues("denied", "upstream"),
		failed:         reviews.WithLabelValues("error", "upstream"),
		allowedCached:  reviews.WithLabelValues("allowed", "cache"),
		deniedCached:   reviews.WithLabelValues("denied", "cache"),
		allowedOffline: reviews.WithLabelValues("allowed", "offline"),
		deniedOffline:  reviews.WithLabelValues("denied", "offline"),
		invalidations: review.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_authorization_invalidations_total",
			Help: "How often all decisions were dropped because an RBAC object changed.",
		})),
	}
}
