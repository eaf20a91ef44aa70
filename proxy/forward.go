package proxy

import (
	"context"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/reason"
)

// forward sends the request to the upstream as its client.
func (g *Gateway) forward(ctx context.Context, x *exchange) *api.Response {
	if !x.spending.MayAsk() {
		return g.overBudget(x)
	}
	x.asked.Requests++
	x.asked.Bytes += float64(max(x.request.ContentLength, 0))
	if x.redacted && !isWhole(x) {
		return g.forwardRedacted(ctx, x)
	}
	as, err := g.credentials(x.subject, &x.request.Header)
	if err != nil {
		return g.refuse(ctx, x, err, reason.NotSent, reason.UserReviews)
	}
	x.source = fromUpstream
	resp := g.transcoder.forward(ctx, x.request, as, x.user())
	if resp.Stream != nil {
		s := g.forwarded.wrap(resp.Stream)
		resp.Stream, x.end = s, s.end
	}
	if x.info.IsWrite() && g.session.observes() {
		return g.session.observeWrite(x.info, resp)
	}
	return resp
}

// credentials says how a request of s is forwarded, and completes its header.
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
