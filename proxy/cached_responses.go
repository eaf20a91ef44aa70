package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// maxSharedResponse is the largest response, in bytes, that concurrent requests share.
	maxSharedResponse = 1 << 20
	// maxSavedResponse is the largest response that is cached, and maxSavedResponses their number:
	// at most 64 MiB, usually 3 MiB of responses of a few hundred bytes.
	maxSavedResponse  = 16 << 10
	maxSavedResponses = 4096
	// maxSavedDocument and maxSavedDocuments bound the cached discovery documents of all groups: at
	// most 64 MiB, and usually 4 MiB if they are compressed. At most maxSavedDocuments are read or
	// written at a time, and users share these slots. Other documents are forwarded without being
	// cached.
	maxSavedDocument  = 1 << 20
	maxSavedDocuments = 64
)

// cachedOrFetched responds with the upstream's response to the same request of the same user with
// the same impersonation, if it is recent or concurrent requests share it. The response is
// therefore the upstream's own, whatever the request. If cachedOrFetched returns nil, the request
// must be forwarded.
func (g *Gateway) cachedOrFetched(ctx context.Context, x *exchange, from *responses.Cache, question [sha256.Size]byte, fetch func(context.Context) (*responses.Response, error)) *api.Response {
	resp, origin, part, err := from.Get(ctx, x.Subject, question, fetch)
	if part > 0 && origin != responses.Cached {
		x.cost.Requests += part
	}
	switch {
	case errors.Is(err, review.ErrNoReview):
		return g.overBudget(x)
	case err != nil && ctx.Err() != nil:
		return x.fail(err)
	case err != nil, origin == responses.Shared && resp.Status == 401: // of another token, perhaps
		return nil
	}
	if x.source = sourceOf(origin); origin != responses.FromUpstream {
		x.Decision.Allowed = resp.Status != 401 && resp.Status != 403 // to ask
	}
	return resp.New()
}

func sourceOf(origin responses.Origin) response.Source {
	switch origin {
	case responses.Cached:
		return response.FromCache
	case responses.Shared:
		return response.FromCollapsed
	}
	return response.FromUpstream
}

var errNotShareable = errors.New("there is no answer that can be shared")

// fetchForClient sends the request as x's client, for all who wait for the response, of most bytes
// at most.
func (g *Gateway) fetchForClient(ctx context.Context, x *exchange, question []byte, most int) (*responses.Response, error) {
	r := &api.Request{
		Method: x.Request.Method, Path: x.Request.Path, RawPath: x.Request.RawPath, RawQuery: x.Request.RawQuery,
		Host: x.Request.Host, Proto: x.Request.Proto, Listener: x.Request.Listener,
	}
	if question != nil {
		r.Body, r.ContentLength = bytes.NewReader(question), int64(len(question))
	}
	for _, name := range responses.VaryingHeaders {
		for _, v := range x.Request.Header.Values(name) {
			r.Header.Add(name, v)
		}
	}
	r.Header.Add("Audit-Id", x.auditID)
	as, err := g.credentials(x.Subject, &r.Header)
	if err != nil {
		return nil, err
	}
	resp := g.Forwarder.Forward(ctx, r, as)
	if resp.Stream != nil || resp.Upgrade != nil {
		response.Discard(resp)
		return nil, errNotShareable
	}
	body := response.NewBuffer(most)
	if resp.BodyTo == nil {
		_, err = body.Write(resp.Body)
	} else {
		_, err = resp.BodyTo.WriteTo(body)
	}
	response.Finish(resp, int64(len(body.Bytes())), err)
	if err != nil {
		return nil, err
	}
	return &responses.Response{Status: resp.Status, Header: response.SharedHeader(resp.Header), Body: body.Bytes()}, nil
}
