package proxy

import (
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/proxy/audit"
)

// audited reports whether the answer is one that the upstream never sees. What
// is forwarded is in the upstream's own audit log.
func (g *Gateway) audited(x *exchange) bool {
	return g.Audit.Enabled() && x.source != fromUpstream && x.subject != nil
}

// audit records one stage of a request.
func (g *Gateway) audit(x *exchange, stage auditv1.Stage, code int) {
	if !g.audited(x) {
		return
	}
	e := &audit.Event{
		Stage: stage, ID: x.auditID, Request: x.request, Info: &x.info, Received: x.began,
		User: x.subject.Identity.User, Code: code,
		Allowed: x.decision.Allowed, Reason: x.decision.Reason,
	}
	if x.subject.Impersonated {
		e.ImpersonatedUser = x.subject.User
	}
	switch x.source {
	case fromCache:
		e.Source = audit.Cached
	case fromCollapsed:
		e.Source = audit.Collapsed
	case fromRevalidated:
		e.Source = audit.Revalidated
	}
	g.Audit.Record(e)
}
