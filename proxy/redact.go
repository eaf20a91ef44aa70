package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/redact"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// Clients with a redacted view (a rule with view: redacted) are served by forms of redacted objects
// (form.Renderer.For), most-recent reads included: the cache is confirmed to hold the most recent
// state first. The gateway requests objects that the cache cannot serve in JSON and redacts them in
// memory.
// Everything else is rejected before the upstream receives the request.

const (
	// maxRedactedResponse is the largest response that is redacted on its way, and maxRedactedAnswers
	// how many at a time, shared by users. A redacted copy of its size is in memory besides, and a
	// tenth of that to make it.
	maxRedactedResponse  = 8 << 20
	maxRedactedResponses = 8
	// maxRedactedWatches is how many watches at a time are, which users share.
	maxRedactedWatches = 64
)

// forwardRedacted forwards a read and redacts the answer on its way.
func (g *Gateway) forwardRedacted(ctx context.Context, x *exchange) *api.Response {
	accept, _ := api.AcceptJSON(x.Request.Header.Get("Accept"), x.PrintsTables) // see route.Facts.Next
	limiter := g.forwards.redactedResponses
	if x.Info.Verb == "watch" {
		limiter = g.forwards.redactedWatches
	}
	if !limiter.Acquire(x.user(), 1) {
		g.countRejected(x, reason.Redacted)
		return inflight.Rejected()
	}
	as, err := g.credentials(x.Subject, &x.Request.Header)
	if err != nil {
		limiter.Release(x.user(), 1)
		return g.rejectUnreviewed(ctx, x, err, reason.NotSent, reason.UserReviews)
	}
	req := *x.Request
	req.Header = slices.Clone(req.Header)
	req.Header.Set("Accept", accept)
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range"} {
		req.Header.Del(name)
	}
	x.source = response.FromUpstream
	resp := g.redactResponse(x, g.Forwarder.Forward(ctx, &req, as))
	done := resp.Done
	resp.Done = func(n int64, err error) {
		limiter.Release(x.user(), 1)
		if done != nil {
			done(n, err)
		}
	}
	return resp
}

// printsTables reports whether the cells of the upstream's Tables are known to be safe. The cells
// of custom resources contain what their definition selects, which may be any value. Rows are
// redacted in any case.
func printsTables(resources route.Resources, info *api.RequestInfo) bool {
	res, why := resources.Find(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	return why == reason.NotForwarded && !res.Custom && !res.Aggregated && res.Printer != nil
}

// redactResponse returns the upstream's response, redacted, or a rejection.
func (g *Gateway) redactResponse(x *exchange, resp *api.Response) *api.Response {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.Upgrade != nil || strings.TrimSpace(mediaType) != "application/json" || resp.Header.Has("Content-Encoding") {
		status := resp.Status
		response.Discard(resp)
		if status >= 400 {
			resource := schema.GroupResource{Group: x.Info.APIGroup, Resource: x.Info.Resource}
			return x.fail(apierrors.NewGenericServerResponse(status, x.Info.Verb, resource, x.Info.Name, "", 0, false))
		}
		return g.unredacted(x, errors.New("it is no JSON"))
	}
	redactor := redact.Redactor{
		Secret: x.Info.Resource == "secrets" && x.Info.APIGroup == "", Tables: x.PrintsTables,
	}
	header := redact.Header(resp.Header)
	if resp.Stream != nil {
		s := g.forwarded.wrap(&response.RewrittenStream{Stream: resp.Stream, Rewrite: redactor.Event, Failed: g.redactionFailed})
		x.end = s.end
		return &api.Response{Status: resp.Status, Header: header, Stream: s, Started: resp.Started, Done: resp.Done}
	}
	text, err := response.ReadBody(resp, maxRedactedResponse)
	if err != nil {
		return g.unredacted(x, err)
	}
	redacted, err := redactor.Object(text)
	if err != nil {
		return g.unredacted(x, err)
	}
	return &api.Response{Status: resp.Status, Header: header, Body: redacted, Length: int64(len(redacted))}
}

// unredacted rejects a response that cannot be redacted.
func (g *Gateway) unredacted(x *exchange, err error) *api.Response {
	g.countRejected(x, reason.Redacted)
	text := "a rule of kubeweir (view: redacted) shows this client a redacted view, and the upstream's response cannot be redacted: " + err.Error()
	if errors.Is(err, response.ErrTooLarge) {
		text += "; ask for pages (limit=500)"
	}
	return x.fail(authz.Forbidden(x.Subject.User, authz.AttributesOf(x.Info), text))
}

// redactionFailed is the last event of a watch that cannot be redacted.
func (g *Gateway) redactionFailed(err error) []byte {
	g.account.rejected.Count(reason.Redacted)
	return redact.ErrorEvent(err)
}
