package identity

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/reason"
)

// register registers c with reg, if there is one, and returns it.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg != nil {
		reg.MustRegister(c)
	}
	return c
}

// limit registers the bound of what another metric shows.
func limit(reg prometheus.Registerer, name, help string, most int) {
	register(reg, gaugefunc.New(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(most) }))
}

// The counters are looked up once, so that counting costs one atomic addition.

type authenticationMetrics struct {
	bySource                                                             [sources]prometheus.Counter
	unauthenticated, unavailable, failed                                 prometheus.Counter
	reviewValid, reviewInvalid, reviewError, reviewCached, reviewOffline prometheus.Counter
	reviewLimited                                                        prometheus.Counter
}

func newAuthenticationMetrics(reg prometheus.Registerer) *authenticationMetrics {
	requests := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authentication_requests_total",
		Help: "Requests by how they were authenticated, or why not.",
	}, []string{"result"}))
	reviews := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
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
	case errors.Is(err, ErrUnavailable):
		m.unavailable.Inc()
	default:
		m.failed.Inc()
	}
}

func (m *authenticationMetrics) tokens(reg prometheus.Registerer, t *tokens) {
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_cache_entries",
		Help: "Reviews of bearer tokens that are remembered.",
	}, func() float64 { return float64(t.remember()) }))
	limit(reg, "kubeweir_authentication_cache_entries_limit", "The most reviews of bearer tokens that are remembered, and the most client certificates.", t.opts.CacheSize)
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_newcomers",
		Help: "Requests that wait for the review of a bearer token that was never seen good.",
	}, func() float64 { return float64(t.newcomers.requests.Load()) }))
}

func (m *authenticationMetrics) certificates(reg prometheus.Registerer, size func() int) {
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authentication_certificate_cache_entries",
		Help: "Client certificates, good and bad, of which the verification is remembered.",
	}, func() float64 { return float64(size()) }))
}

type authorizationMetrics struct {
	allowed, denied, failed       prometheus.Counter // asked of the upstream
	allowedCached, deniedCached   prometheus.Counter
	allowedOffline, deniedOffline prometheus.Counter
	invalidations                 prometheus.Counter
}

func newAuthorizationMetrics(reg prometheus.Registerer, size, lastWords func() int, most int) *authorizationMetrics {
	reviews := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_reviews_total",
		Help: "Permissions decided, by result (allowed, denied, error) and by where the answer came from: the upstream, the cache, or, because the upstream could not be asked, its last word or the RBAC objects in the cache (offline).",
	}, []string{"result", "from"}))
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_cache_entries",
		Help: "Decisions that are remembered.",
	}, func() float64 { return float64(size()) }))
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_offline_entries",
		Help: "Decisions of the upstream that are remembered for the time in which it cannot be asked, at most as many as kubeweir_authorization_cache_entries_limit; 0 where nobody is served offline.",
	}, func() float64 { return float64(lastWords()) }))
	limit(reg, "kubeweir_authorization_cache_entries_limit", "The most decisions that are remembered; further ones push others out.", most)
	return &authorizationMetrics{
		allowed:        reviews.WithLabelValues("allowed", "upstream"),
		denied:         reviews.WithLabelValues("denied", "upstream"),
		failed:         reviews.WithLabelValues("error", "upstream"),
		allowedCached:  reviews.WithLabelValues("allowed", "cache"),
		deniedCached:   reviews.WithLabelValues("denied", "cache"),
		allowedOffline: reviews.WithLabelValues("allowed", "offline"),
		deniedOffline:  reviews.WithLabelValues("denied", "offline"),
		invalidations: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_authorization_invalidations_total",
			Help: "How often all decisions were dropped because an RBAC object changed.",
		})),
	}
}

// visibleMetrics count the reviews for sets of visible namespaces.
type visibleMetrics struct{ read, recheck prometheus.Observer }

func newVisibleMetrics(reg prometheus.Registerer) visibleMetrics {
	reviews := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
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

type watchesMetrics struct {
	rechecks map[recheckResult]prometheus.Counter
	ended    map[reason.WatchEnd]prometheus.Counter
}

func newWatchesMetrics(reg prometheus.Registerer, open, bytes func() int) *watchesMetrics {
	rechecks := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_watch_rechecks_total",
		Help: "Reviews of the permission and the credential of open watches, by result: good, offline (good by what the upstream said last, for it could not be asked), lost (the watch ends), unknown (the upstream could not be asked).",
	}, []string{"result"}))
	ended := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_watches_ended_total",
		Help: "Open watches ended because they may not go on, by reason: the permission was revoked, the namespaces that a watch of the visible ones shows have become others, the credential is no longer good, or neither could be confirmed for too long.",
	}, []string{"reason"}))
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_watches",
		Help: "Open watches whose permission is followed.",
	}, func() float64 { return float64(open()) }))
	register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_watch_bytes",
		Help: "Bytes of the attributes, selectors for the most part, that open watches are allowed by; equal ones of one user count once.",
	}, func() float64 { return float64(bytes()) }))
	m := &watchesMetrics{rechecks: make(map[recheckResult]prometheus.Counter), ended: make(map[reason.WatchEnd]prometheus.Counter)}
	for _, r := range []recheckResult{recheckGood, recheckOffline, recheckBad, recheckUnknown} {
		m.rechecks[r] = rechecks.WithLabelValues(string(r))
	}
	for _, r := range []reason.WatchEnd{reason.PermissionRevoked, reason.NamespacesChanged, reason.CredentialInvalid, reason.Unconfirmed} {
		m.ended[r] = ended.WithLabelValues(r.String())
	}
	return m
}
