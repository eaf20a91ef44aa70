package proxy

import (
	"errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

var errNotAudited = errors.New("failed to store audit event")

// beginAudit begins to record a request whose client was identified, or not; rejection is the response
// if it was not admitted. Health checks of a gateway are not recorded, nor are requests that were
// rejected before anything was known about them. A response is the rejection of a request that cannot
// be recorded.
func (g *Gateway) beginAudit(x *exchange, rejection *api.Response) *api.Response {
	if !g.Audit.Enabled() {
		return nil
	}
	m := audit.Metadata{ID: x.auditID, Cluster: g.Cluster, Request: x.Request, Info: x.Info, Received: x.began}
	if x.sender != nil {
		m.User = x.sender.User
	} else if rejection == nil || rejection.Status != 401 && rejection.Status != 403 {
		return nil
	}
	x.audited = g.Audit.Begin(&m)
	if !x.audited.Received() {
		x.audited = nil
		g.countRejected(x, reason.NotAudited)
		return internalError(x.Request, errNotAudited)
	}
	if !g.InProcess {
		x.audited.KeepBody(x.Request)
	}
	return nil
}

// audit records the response to a request.
func (g *Gateway) audit(x *exchange, resp *api.Response) {
	if x.audited == nil {
		return
	}
	if x.Subject != nil && x.Subject.Impersonated {
		x.audited.Impersonated(x.Subject.User)
	}
	if x.source != response.FromGateway {
		x.audited.From(string(x.source))
	}
	// Only the upstream knows why it allowed or rejected a forwarded request.
	if known := x.Permission != route.Unknown || x.Decision.Allowed || x.Decision.Reason != ""; known && x.source != response.FromUpstream {
		x.audited.Decided(x.Decision.Allowed, x.Decision.Reason)
	}
	x.audited.Responding(resp, x.Info.LongRunning())
}
