package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// maxReviewBody is the largest body of a self-review that is read, in bytes; it names a resource.
// Larger ones are forwarded.
const maxReviewBody = 4 << 10

// selfReview responds to a self-review from the upstream's recent response to the same request of
// the same user. If it returns nil, the request must be forwarded; its body can still be read.
func (g *Gateway) selfReview(ctx context.Context, x *exchange) *api.Response {
	question, ok := readReview(x.Request)
	if !ok {
		return nil
	}
	return g.cachedOrFetched(ctx, x, g.memory.responses, responses.Digest(x.Request, question), func(ctx context.Context) (*responses.Response, error) {
		r, err := g.fetchForClient(ctx, x, question, maxSharedResponse)
		if err != nil {
			return nil, err
		}
		if r.Status == 201 && len(r.Body) <= maxSavedResponse && r.Header.Get("Content-Type") == "application/json" && !r.Header.Has("Content-Encoding") {
			r.Keep, r.Allowed = true, x.Request.Path != policy.AccessReviewPath || allows(r.Body)
		}
		return r, nil
	})
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
