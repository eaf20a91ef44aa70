package revocation

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/review"
)

type metrics struct {
	rechecks map[review.Outcome]prometheus.Counter
	ended    map[string]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, open, bytes func() int) *metrics {
	gaugefunc.Register(reg, "kubeweir_authorization_watches", "Open watches whose permission is reviewed.", open)
	gaugefunc.Register(reg, "kubeweir_authorization_watch_bytes",
		"Bytes of the attributes, mostly selectors, of open watches; equal ones of one user count once.", bytes)
	return &metrics{
		rechecks: review.Counters(reg, "kubeweir_authorization_watch_rechecks_total",
			"Reviews of the permission and the credential of open watches, by result: good, offline (good by the upstream's last decision, because it is unavailable), lost (the watch ends), unknown (the upstream is unavailable).",
			"result", review.Good, review.Offline, review.Lost, review.Unknown),
		ended: review.Counters(reg, "kubeweir_authorization_watches_ended_total",
			"Open watches ended by the gateway, by reason: the permission was revoked, the visible namespaces changed, the credential is no longer valid, or the permission and credential could not be confirmed for too long.",
			"reason", reason.PermissionRevoked.String(), reason.NamespacesChanged.String(), reason.CredentialInvalid.String(), reason.Unconfirmed.String()),
	}
}
