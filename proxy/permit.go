package proxy

import (
	"context"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/identity"
)

// identify finds out who asks and as whom, and takes every credential out of
// the request's header.
func (g *Gateway) identify(ctx context.Context, x *exchange) error {
	id, err := g.Authenticator.Authenticate(ctx, x.request)
	if err != nil {
		return err
	}
	x.subject, err = g.Authorizer.Impersonate(ctx, id, x.request)
	return err
}

// permit asks whether the read may be answered here; nil means yes, else it is
// the refusal.
func (g *Gateway) permit(ctx context.Context, x *exchange) *api.Response {
	attributes := identity.AttributesOf(&x.info)
	d, err := g.Authorizer.Authorize(ctx, x.subject.User, attributes)
	if err != nil {
		return x.fail(identity.StatusError(err))
	}
	if !d.Allowed {
		return x.fail(identity.Forbidden(x.subject.User, attributes, d.Reason))
	}
	x.decision = d
	return nil
}
