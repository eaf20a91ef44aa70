package proxy

import (
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// audited reports whether the request is recorded. Health checks are not, as in the usual policies
// of kube-apiserver, nor are requests that were rejected before anything was known about them.
func (g *Gateway) audited(x *exchange, code int) bool {
	return g.Audit.Enabled() && (x.sender != nil || code == 401 || code == 403)
}

// audit records one stage of a request.
func (g *Gateway) audit(x *exchange, stage auditv1.Stage, code int) {
	if !g.audited(x, code) {
		return
	}
	e := &audit.Event{
		Stage: stage, Cluster: g.Cluster, ID: x.auditID, Request: x.Request, Info: x.Info, Received: x.began,
		Code: code, Allowed: x.Decision.Allowed, Reason: x.Decision.Reason,
	}
	if x.sender != nil {
		e.User = x.sender.User
		e.Required = x.Info.IsWrite() || !route.IsReadMethod(x.Request.Method) || x.Request.Upgrade != ""
		if x.Subject != nil && x.Subject.Impersonated {
			e.ImpersonatedUser = x.Subject.User
		}
	}
	if x.source != response.FromGateway {
		e.Source = audit.Source(x.source)
	}
	g.Audit.Record(e)
}
