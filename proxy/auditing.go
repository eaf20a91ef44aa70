package proxy

import (
	"context"
	"errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

var errNotAudited = errors.New("failed to store audit event")

// beginAudit begins to record a request whose client was identified, or that is rejected for another
// reason than that too many wait to be identified. Health checks of a gateway are not recorded. A
// response is the rejection of a request that cannot be recorded.
func (g *Gateway) beginAudit(ctx context.Context, x *exchange) *api.Response {
	if !g.Audit.Enabled() {
		return nil
	}
	m := audit.Metadata{ID: x.auditID, Cluster: g.Cluster, Request: x.Request, Info: x.Info, Received: x.began, Client: ctx}
	if x.sender != nil {
		m.User = x.sender.User
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
