package proxy

import (
	"context"
	"log/slog"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// forward sends the request to the upstream as its client.
func (g *Gateway) forward(ctx context.Context, x *exchange) *api.Response {
	if !x.Budgets.MaySend() {
		return g.overBudget(x)
	}
	x.cost.Requests++
	x.cost.Bytes += float64(max(x.Request.ContentLength, 0))
	if x.Redacted && x.Info.IsResourceRequest && !policy.IsSelfReview(x.Request) {
		return g.forwardRedacted(ctx, x)
	}
	as, err := g.credentials(x.Subject, &x.Request.Header)
	if err != nil {
		return g.rejectUnreviewed(ctx, x, err, reason.NotSent, reason.UserReviews)
	}
	x.source = response.FromUpstream
	if g.InProcess {
		ctx = x.audited.Context(ctx)
	}
	resp := g.Forwarder.Forward(ctx, x.Request, as)
	if resp.Stream != nil {
		s := g.forwarded.wrap(resp.Stream)
		resp.Stream, x.end = s, s.end
	}
	if x.Info.IsWrite() && g.session.Observes() {
		return g.session.ObserveWrite(x.Info, resp)
	}
	return resp
}

// credentials returns how a request of s is authenticated upstream, and completes its header.
func (g *Gateway) credentials(s *authn.Subject, h *api.Header) (upstream.Credentials, error) {
	if g.InProcess && s.Identity.Source != authn.Gateway {
		err := s.SetTrustedHeader(h)
		return upstream.Credentials{As: upstream.AsClient, User: s.Identity.User, KeepImpersonation: true}, err
	}
	if err := s.SetUpstreamHeader(h); err != nil {
		return upstream.Credentials{}, err
	}
	as := upstream.Credentials{As: upstream.AsClient, KeepImpersonation: true}
	if s.GatewayCredentials() {
		as.As, as.OwnImpersonation = upstream.AsGateway, s.Identity.Source == authn.Gateway
	}
	return as, nil
}

// forwardedHeader is the response header with the reason why a read was forwarded, sent at log
// level debug.
const forwardedHeader = "Kubeweir-Forwarded"

// forwardCounted forwards a request, and counts why if it is a read.
func (g *Gateway) forwardCounted(ctx context.Context, x *exchange, why reason.Forward) *api.Response {
	if why != reason.NotForwarded {
		x.span.SetReason(why.String()) // a rejection replaces it
	}
	resp := g.forward(ctx, x)
	if why != reason.NotForwarded {
		g.countForwarded(ctx, x, why, resp)
	}
	if x.Info.Query != nil && x.Request.Method != "HEAD" {
		resp.Header.Add("Warning", `299 kubeweir "sortBy, where, offset, fields and countBy were left to the API server of this resource"`)
	}
	return resp
}

// countForwarded counts a read that was forwarded, and logs the reason at level debug.
func (g *Gateway) countForwarded(ctx context.Context, x *exchange, why reason.Forward, resp *api.Response) {
	g.account.metrics.forwarded[why].Inc()
	if g.Logger.Enabled(ctx, slog.LevelDebug) {
		g.Logger.Debug("read forwarded", "reason", why.String(), "verb", x.Info.Verb, "group", x.Info.APIGroup, "resource", x.Info.Resource)
		if resp.Upgrade == nil {
			resp.Header.Set(forwardedHeader, why.String())
		}
	}
}
