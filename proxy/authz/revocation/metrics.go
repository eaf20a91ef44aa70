package revocation

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/reason"
)

type watchesMetrics struct {
	rechecks map[review.Outcome]prometheus.Counter
	ended    map[reason.WatchEnd]prometheus.Counter
}

func newWatchesMetrics(reg prometheus.Registerer, open, bytes func() int) *watchesMetrics {
	rechecks := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_watch_rechecks_total",
		Help: "Reviews of the permission and the credential of open watches, by result: good, offline (good by what the upstream said last, for it could not be asked), lost (the watch ends), unknown (the upstream could not be asked).",
	}, []string{"result"}))
	ended := review.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_authorization_watches_ended_total",
		Help: "Open watches ended because they may not go on, by reason: the permission was revoked, the namespaces that a watch of the visible ones shows have become others, the credential is no longer good, or neither could be confirmed for too long.",
	}, []string{"reason"}))
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_watches",
		Help: "Open watches whose permission is followed.",
	}, func() float64 { return float64(open()) }))
	review.Register(reg, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_watch_bytes",
		Help: "Bytes of the attributes, selectors for the most part, that open watches are allowed by; equal ones of one user count once.",
	}, func() float64 { return float64(bytes()) }))
	m := &watchesMetrics{rechecks: make(map[review.Outcome]prometheus.Counter), ended: make(map[reason.WatchEnd]prometheus.Counter)}
	for _, r := range []review.Outcome{review.Good, review.Offline, review.Lost, review.Unknown} {
		m.rechecks[r] = rechecks.WithLabelValues(string(r))
	}
	for _, r := range []reason.WatchEnd{reason.PermissionRevoked, reason.NamespacesChanged, reason.CredentialInvalid, reason.Unconfirmed} {
		m.ended[r] = ended.WithLabelValues(r.String())
	}
	return m
}
