package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/proxy/tracing"
)

// identify finds out who sends the request, and takes all credentials out of its header. A response
// is the rejection.
func (g *Gateway) identify(ctx context.Context, x *exchange) *api.Response {
	id, err := g.Authenticator.Authenticate(ctx, x.Request)
	if err != nil {
		return g.rejectUnreviewed(ctx, x, err, reason.NotLocal, reason.UnverifiedTokens)
	}
	x.sender = id
	x.countReviews(id.Reviews)
	x.span = g.Tracer.Start(tracing.Request{Request: x.Request, User: id.User, Began: x.began, AuditID: x.auditID})
	return nil
}

// impersonate finds out as whom the request is made, and takes the impersonation headers out, then
// those that belong to the client's connection: from here on headers may be added. A response is
// the rejection.
func (g *Gateway) impersonate(ctx context.Context, x *exchange) *api.Response {
	subject, err := g.Authorizer.Impersonate(ctx, x.sender, x.Request)
	if err == nil {
		x.Subject = subject
		x.countReviews(subject.Reviews)
		x.Request.Header.EndToEnd()
		x.Request.Header.Set("Audit-Id", x.auditID)
		x.span.Inject(&x.Request.Header)
		return nil
	}
	resp := g.rejectUnreviewed(ctx, x, err, reason.ImpersonationForbidden, reason.UserReviews)
	if resp.Status == 400 {
		// The upstream rejects malformed impersonation differently.
		resp.Header.Add("X-Content-Type-Options", "nosniff")
	}
	return resp
}

// authorize asks whether the cache may serve the read to its user.
func (g *Gateway) authorize(ctx context.Context, x *exchange) *api.Response {
	d, err := g.Authorizer.Authorize(ctx, x.Subject.User, authz.AttributesOf(x.Info))
	x.countReviews(d.Reviews)
	if err != nil {
		return g.rejectUnreviewed(ctx, x, err, reason.Forbidden, reason.UserReviews)
	}
	x.Decision, x.Permission = d, route.StateOf(d.Allowed)
	return nil
}

// permit authorizes a request for a document in memory; nil means that the user may have it.
func (g *Gateway) permit(ctx context.Context, x *exchange) *api.Response {
	if resp := g.authorize(ctx, x); resp != nil || x.Permission == route.Yes {
		return resp
	}
	return g.reject(ctx, x, route.Decision{Rejection: reason.Forbidden, Err: x.Forbidden(x.Decision.Reason)})
}

// rejectUnreviewed responds with an error of packages authn and authz, and counts it: a 403 under
// the reason forbidden, a 429 under busy, others by their status.
func (g *Gateway) rejectUnreviewed(ctx context.Context, x *exchange, err error, forbidden, busy reason.Rejection) *api.Response {
	if errors.Is(err, review.ErrNoReview) {
		return g.overBudget(x)
	}
	resp := x.fail(authn.StatusError(err))
	if failed := (*authz.DecisionError)(nil); errors.As(err, &failed) {
		resp = internalError(x.Request, failed.Err)
	}
	if ctx.Err() != nil {
		return resp // nobody is there to be refused
	}
	switch resp.Status {
	case 400:
		g.countRejected(x, reason.ImpersonationInvalid)
	case 401:
		g.countRejected(x, reason.Unauthenticated)
	case 403:
		g.countRejected(x, forbidden)
	case 429:
		g.countRejected(x, busy)
	case 503:
		g.countRejected(x, reason.ReviewUnavailable)
	default:
		g.countRejected(x, reason.ReviewRejected)
	}
	return resp
}

// internalError is kube-apiserver's response if its authorizer or its audit log fails
// (responsewriters.InternalError).
func internalError(r *api.Request, err error) *api.Response {
	uri := r.RawPath
	if r.RawQuery != "" {
		uri += "?" + r.RawQuery
	}
	text := strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;").Replace(fmt.Sprintf("Internal Server Error: %q: %v", uri, err))
	body := []byte(text + "\n")
	return &api.Response{Status: 500, Length: int64(len(body)), Body: body, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl},
		{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
		{Name: "X-Content-Type-Options", Value: "nosniff"},
	}}
}
