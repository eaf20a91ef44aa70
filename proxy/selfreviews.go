package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// maxReviewBody is the largest body of a self-review that is read, in bytes; it names a resource.
	// Larger ones are forwarded.
	maxReviewBody = 4 << 10
	// maxSharedReview is the largest response, in bytes, that concurrent requests share.
	maxSharedReview = 1 << 20
	// maxSavedReview is the largest response that is cached, and maxSavedReviews their number: at most
	// 64 MiB, usually 3 MiB of responses of a few hundred bytes.
	maxSavedReview  = 16 << 10
	maxSavedReviews = 4096
)

// selfReview responds to a self-review with what the upstream responded to the same request of the
// same user, acting as the same user, recently or to concurrent requests. So the response is the
// upstream's own, whatever the request and its form are. If it returns nil, the request must be
// forwarded; its body can still be read.
func (g *Gateway) selfReview(ctx context.Context, x *exchange) *api.Response {
	question, ok := readReview(x.Request)
	if !ok {
		return nil
	}
	response, origin, part, err := g.selfReviews.Get(ctx, x.Subject, responses.Digest(x.Request, question), func(ctx context.Context) (*responses.Response, error) {
		r, err := g.fetchReview(ctx, x, question)
		if err == nil && r.Status == 201 && len(r.Body) <= maxSavedReview && r.Header.Get("Content-Type") == "application/json" && !r.Header.Has("Content-Encoding") {
			r.Keep, r.Allowed = true, x.Request.Path != policy.AccessReviewPath || allows(r.Body)
		}
		return r, err
	})
	x.cost.Requests += part
	switch {
	case errors.Is(err, review.ErrNoReview):
		return g.overBudget(x)
	case err != nil && ctx.Err() != nil:
		return x.fail(err)
	case err != nil, origin == responses.Shared && response.Status == 401: // of another token, perhaps
		return nil
	}
	switch origin {
	case responses.Cached:
		x.source = fromCache
	case responses.Shared:
		x.source = fromCollapsed
	case responses.FromUpstream:
		x.source = fromUpstream
	}
	if origin != responses.FromUpstream {
		x.Decision.Allowed = response.Status != 401 && response.Status != 403 // to ask
	}
	return response.New()
}

var errNotShared = errors.New("the response cannot be shared")

// fetchReview sends a self-review as x's client, for all who wait for the response.
func (g *Gateway) fetchReview(ctx context.Context, x *exchange, question []byte) (*responses.Response, error) {
	r := &api.Request{
		Method: x.Request.Method, Path: x.Request.Path, RawPath: x.Request.RawPath, RawQuery: x.Request.RawQuery,
		Host: x.Request.Host, Proto: x.Request.Proto, Listener: x.Request.Listener,
		Body: bytes.NewReader(question), ContentLength: int64(len(question)),
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
		return nil, errNotShared
	}
	body, err := response.ReadBody(resp, maxSharedReview)
	if err != nil {
		return nil, err
	}
	return &responses.Response{Status: resp.Status, Header: response.SharedHeader(resp.Header), Body: body}, nil
}

// readReview reads the body of a self-review as clients usually send it: in JSON, without metadata,
// which would show in the response.
func readReview(r *api.Request) ([]byte, bool) {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxReviewBody ||
		mediaType != "" && strings.TrimSpace(mediaType) != "application/json" || r.Header.Has("Content-Encoding") {
		return nil, false
	}
	body := make([]byte, r.ContentLength)
	if n, err := io.ReadFull(r.Body, body); err != nil {
		r.Body = io.MultiReader(bytes.NewReader(body[:n]), failingReader{err})
		return nil, false
	}
	r.Body = bytes.NewReader(body)
	var review struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(body, &review) != nil {
		return nil, false
	}
	for name, value := range review.Metadata {
		if name != "creationTimestamp" || string(value) != "null" {
			return nil, false
		}
	}
	return body, true
}

// failingReader is a body that broke.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// allows reports whether a response grants the permission.
func allows(response []byte) bool {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	return json.Unmarshal(response, &review) == nil && review.Status.Allowed
}
