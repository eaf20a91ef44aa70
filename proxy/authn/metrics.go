package authn

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// The counters are looked up once, so that counting costs one atomic addition.

type authenticationMetrics struct {
	bySource                                                             [sources]prometheus.Counter
	unauthenticated, unavailable, failed                                 prometheus.Counter
	reviewValid, reviewInvalid, reviewError, reviewCached, reviewOffline prometheus.Counter
	reviewLimited                                                        prometheus.Counter
}

func newAuthenticationMetrics(reg prometheus.Registerer) *authenticationMetrics {
	requests := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authentication_requests_total",
		Help: "Requests by how they were authenticated, or why not.",
	}, []string{"result"}))
	reviews := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authentication_token_reviews_total",
		Help: "Bearer tokens authenticated, by the outcome: valid, invalid and error were asked of the upstream, cached was remembered, offline was remembered for longer because the upstream could not be asked, limited was answered 429 because too many tokens never seen good were being reviewed.",
	}, []string{"result"}))
	m := &authenticationMetrics{
		unauthenticated: requests.WithLabelValues("unauthenticated"),
		unavailable:     requests.WithLabelValues("unavailable"),
		failed:          requests.WithLabelValues("error"),
		reviewValid:     reviews.WithLabelValues("valid"),
		reviewInvalid:   reviews.WithLabelValues("invalid"),
		reviewError:     reviews.WithLabelValues("error"),
		reviewCached:    reviews.WithLabelValues("cached"),
		reviewOffline:   reviews.WithLabelValues("offline"),
		reviewLimited:   reviews.WithLabelValues("limited"),
	}
	for s := Gateway; int(s) < sources; s++ {
		m.bySource[s] = requests.WithLabelValues(s.String())
	}
	return m
}

func (m *authenticationMetrics) failure(err error) {
	switch {
	case errors.Is(err, ErrUnauthenticated):
		m.unauthenticated.Inc()
	case errors.Is(err, review.ErrUnavailable):
		m.unavailable.Inc()
	default:
		m.failed.Inc()
	}
}

func (m *authenticationMetrics) tokens(reg prometheus.Registerer, t *tokens) {
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_cache_entries",
		Help: "Reviews of bearer tokens that are remembered.",
	}, func() float64 { return float64(t.remember()) }))
	review.RegisterLimit(reg, "kubeweir_authentication_cache_entries_limit", "The most reviews of bearer tokens that are remembered, and the most client certificates.", t.opts.CacheSize)
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_newcomers",
		Help: "Requests that wait for the review of a bearer token that was never seen good.",
	}, func() float64 { return float64(t.newcomers.requests.Load()) }))
}

func (m *authenticationMetrics) certificates(reg prometheus.Registerer, size func() int) {
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_certificate_cache_entries",
		Help: "Client certificates, good and bad, of which the verification is remembered.",
	}, func() float64 { return float64(size()) }))
}
