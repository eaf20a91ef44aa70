package proxy

import (
	"context"
	"errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/reason"
)

// identify finds out who asks, and takes every credential out of the request's
// header. nil means that it is known, else it is the refusal.
func (g *Gateway) identify(ctx context.Context, x *exchange) *api.Response {
	id, err := g.Authenticator.Authenticate(ctx, x.request)
	if err != nil {
		return g.refuse(ctx, x, err, reason.NotLocal, reason.Newcomers)
	}
	x.sender = id
	x.askedReviews(id.Reviews)
	return nil
}

// impersonate finds out as whom the request is made, and takes out of its header what
// says so, and then what belongs to the client's connection: from here on lines may be
// added. nil means that it is known, else it is the refusal.
func (g *Gateway) impersonate(ctx context.Context, x *exchange) *api.Response {
	subject, err := g.Authorizer.Impersonate(ctx, x.sender, x.request)
	if err == nil {
		x.subject = subject
		x.askedReviews(subject.Reviews)
		x.request.Header.EndToEnd()
		x.request.Header.Set("Audit-Id", x.auditID)
		return nil
	}
	resp := g.refuse(ctx, x, err, reason.ImpersonationForbidden, reason.UserReviews)
	if resp.Status == 400 {
		// Upstream refuses malformed impersonation by a way of its own.
		resp.Header.Add("X-Content-Type-Options", "nosniff")
	}
	return resp
}

// permit asks whether the read may be answered here; nil means yes, else it is
// the refusal.
func (g *Gateway) permit(ctx context.Context, x *exchange) *api.Response {
	d, refusal := g.review(ctx, x)
	if refusal == nil && !d.Allowed {
		return g.forbidRead(ctx, x, d.Reason)
	}
	return refusal
}

// review asks the authorizer. A decision that allows the request is kept with it.
func (g *Gateway) review(ctx context.Context, x *exchange) (d authz.Decision, refusal *api.Response) {
	d, err := g.Authorizer.Authorize(ctx, x.subject.User, authz.AttributesOf(x.info))
	x.askedReviews(d.Reviews)
	if err != nil {
		return d, g.refuse(ctx, x, err, reason.Forbidden, reason.UserReviews)
	}
	if d.Allowed {
		x.decision = d
	}
	return d, nil
}

// forbidRead is the 403 of a read, for the authorizer's reason.
func (g *Gateway) forbidRead(ctx context.Context, x *exchange, why string) *api.Response {
	x.decision.Reason = why
	return g.refuse(ctx, x, authz.Forbidden(x.subject.User, authz.AttributesOf(x.info), why), reason.Forbidden, reason.UserReviews)
}

// refuse answers with an error of package identity, and counts it: as forbidden if it
// is a 403, as busy if it is a 429, else as what its status stands for.
func (g *Gateway) refuse(ctx context.Context, x *exchange, err error, forbidden, busy reason.Refusal) *api.Response {
	if errors.Is(err, review.ErrNoReview) {
		return g.overBudget(x)
	}
	resp := x.fail(authn.StatusError(err))
	if ctx.Err() != nil {
		return resp // nobody is there to be refused
	}
	switch resp.Status {
	case 400:
		g.refused.Count(reason.ImpersonationInvalid)
	case 401:
		g.refused.Count(reason.Unauthenticated)
	case 403:
		g.refused.Count(forbidden)
	case 429:
		g.refused.Count(busy)
	case 503:
		g.refused.Count(reason.ReviewUnavailable)
	default:
		g.refused.Count(reason.ReviewRefused)
	}
	return resp
}
