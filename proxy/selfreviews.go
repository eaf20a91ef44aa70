package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// maxQuestion is the largest body of a self-review that is looked at, in bytes; it names
// a resource. Larger ones are forwarded.
const maxQuestion = 4 << 10

// selfReview answers a self-review with what the upstream answered to the same request of the
// same user lately. nil tells that the request has to be forwarded; its body can still be read.
func (g *Gateway) selfReview(ctx context.Context, x *exchange) *api.Response {
	question, ok := readQuestion(x.Request)
	if !ok {
		return nil
	}
	return g.answerBefore(ctx, x, g.memory.answers, digestOf(x.Request, question), func(ctx context.Context) (out rememberedAnswer, err error) {
		answer, err := g.askUpstream(ctx, x, question, maxSharedAnswer)
		if err != nil {
			return out, err
		}
		out.Value = answer
		if answer.status == 201 && len(answer.body) <= maxKeptAnswer && answer.header.Get("Content-Type") == "application/json" && !answer.header.Has("Content-Encoding") {
			answer.times, out.Keep, out.Allowed = timesOf(answer.body), true, x.Request.Path != policy.AccessReviewPath || allows(answer.body)
		}
		return out, nil
	})
}

// readQuestion takes the body of a self-review that is asked as clients do: in JSON, without
// metadata, of which the answer would have something.
func readQuestion(r *api.Request) ([]byte, bool) {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > maxQuestion ||
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

// allows reports whether an answer permits what was asked.
func allows(answer []byte) bool {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	return json.Unmarshal(answer, &review) == nil && review.Status.Allowed
}
