package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/identity"
)

const (
	// maxQuestion is the largest body of a self-review that is looked at, in bytes; it names
	// a resource. Larger ones are forwarded.
	maxQuestion = 4 << 10
	// maxSharedAnswer is the largest answer that is shared between those who wait for it.
	maxSharedAnswer = 1 << 20
	// maxKeptAnswer is the largest answer that is remembered, and maxSelfAnswers how many
	// are: 64 MiB at most, of answers of a few hundred bytes as a rule 3 MiB.
	maxKeptAnswer  = 16 << 10
	maxSelfAnswers = 4096
)

// isSelfReview reports whether a request asks what its user may do, or who it is. Nothing is
// changed by it.
func isSelfReview(r *api.Request) bool {
	if r.Method != "POST" || r.RawPath != r.Path || r.Upgrade != "" {
		return false
	}
	switch r.Path {
	case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":
		return true
	}
	return false
}

// selfAnswer is what the upstream answered to a self-review. It is shared and must not be
// changed.
type selfAnswer struct {
	status int
	header api.Header
	body   []byte
	at     time.Time
	// times is where in the body there are moments of the answer, see timesOf.
	times []int
}

// selfReview answers a self-review with what the upstream answered to the same request of the
// same user, as the same user, lately or to others who wait for it now. So the answer is the
// upstream's own whatever is asked, and in whichever form. nil tells that the request has to
// be forwarded; its body can still be read.
func (g *Gateway) selfReview(ctx context.Context, x *exchange) *api.Response {
	if x.settings.SelfReviews != Yes || !isSelfReview(x.request) || !g.selfReviews.Covers(x.subject) {
		return nil
	}
	question, ok := readQuestion(x.request)
	if !ok {
		return nil
	}
	answer, told, part, err := g.selfReviews.Ask(ctx, x.subject, digestOf(x.request, question), func(ctx context.Context) (identity.SelfAnswer[*selfAnswer], error) {
		return g.askUpstream(ctx, x, question)
	})
	if part > 0 && told != identity.ToldBefore {
		x.asked.Requests += part
	}
	switch {
	case errors.Is(err, identity.ErrNotAsked):
		return g.overBudget(x)
	case err != nil && ctx.Err() != nil:
		return x.fail(err)
	case err != nil, told == identity.ToldOthers && answer.status == 401: // of another token, perhaps
		return nil
	}
	if x.source = sourceOf(told); told != identity.ToldNow {
		x.decision.Allowed = answer.status != 401 && answer.status != 403 // to ask
	}
	return answer.response(time.Now())
}

func sourceOf(told identity.Told) source {
	switch told {
	case identity.ToldBefore:
		return fromCache
	case identity.ToldOthers:
		return fromCollapsed
	}
	return fromUpstream
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

// answering are the headers by which an answer differs. The user agent is in it where the
// upstream writes down who manages a field.
var answering = [...]string{"Accept", "Accept-Encoding", "Content-Type", "Origin", "User-Agent"}

// digestOf names a self-review: all that its answer depends on but who asks.
func digestOf(r *api.Request, body []byte) (d [sha256.Size]byte) {
	h := sha256.New()
	number := func(n int) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) } // a hash never fails
	text := func(s string) {
		number(len(s))
		_, _ = io.WriteString(h, s)
	}
	text(r.Path)
	text(r.RawQuery)
	for _, name := range answering {
		values := r.Header.Values(name)
		number(len(values))
		for _, v := range values {
			text(v)
		}
	}
	text(string(body))
	h.Sum(d[:0])
	return d
}

var errNotAnswered = errors.New("the self-review has no answer that can be shared")

// askUpstream asks as x's client, for all who wait for the answer.
func (g *Gateway) askUpstream(ctx context.Context, x *exchange, question []byte) (out identity.SelfAnswer[*selfAnswer], err error) {
	r := &api.Request{
		Method: x.request.Method, Path: x.request.Path, RawPath: x.request.RawPath, RawQuery: x.request.RawQuery,
		Host: x.request.Host, Proto: x.request.Proto, Listener: x.request.Listener,
		Body: bytes.NewReader(question), ContentLength: int64(len(question)),
	}
	for _, name := range answering {
		for _, v := range x.request.Header.Values(name) {
			r.Header.Add(name, v)
		}
	}
	r.Header.Add("Audit-Id", x.auditID)
	as, err := g.credentials(x.subject, &r.Header)
	if err != nil {
		return out, err
	}
	resp := g.transcoder.forward(ctx, r, as, x.user())
	if resp.Stream != nil || resp.Upgrade != nil {
		discard(resp)
		return out, errNotAnswered
	}
	body := boundedBuffer{max: maxSharedAnswer}
	if resp.BodyTo == nil {
		_, err = body.Write(resp.Body)
	} else {
		_, err = resp.BodyTo.WriteTo(&body)
	}
	finish(resp, int64(body.all.Len()), err)
	if err != nil {
		return out, err
	}
	answer := &selfAnswer{status: resp.Status, header: sharedHeader(resp.Header), body: body.all.Bytes(), at: time.Now()}
	if answer.status == 201 && len(answer.body) <= maxKeptAnswer && resp.Header.Get("Content-Type") == "application/json" && !resp.Header.Has("Content-Encoding") {
		answer.times, out.Keep = timesOf(answer.body), true
		out.Allowed = allows(answer.body)
	}
	out.Value = answer
	return out, nil
}

// allows reports whether an answer permits what was asked.
func allows(answer []byte) bool {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	return json.Unmarshal(answer, &review) == nil && review.Status.Allowed
}

// momentIn finds the times of an answer: when it was made, and since when its fields are
// managed. In a string there is a backslash before each quote.
var momentIn = regexp.MustCompile(`"(?:creationTimestamp|time)": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"`)

// timesOf is where the times of an answer begin.
func timesOf(answer []byte) (at []int) {
	for _, found := range momentIn.FindAllSubmatchIndex(answer, -1) {
		at = append(at, found[2])
	}
	return at
}

// response is the answer as it would be given now: its times are as much later as now is.
func (a *selfAnswer) response(now time.Time) *api.Response {
	header := make(api.Header, len(a.header))
	copy(header, a.header)
	body := a.body
	if later := now.Sub(a.at); later >= time.Second && len(a.times) > 0 {
		body = bytes.Clone(body)
		for _, at := range a.times {
			moment := body[at : at+len("2006-01-02T15:04:05Z")]
			if t, err := time.Parse(time.RFC3339, string(moment)); err == nil {
				copy(moment, t.Add(later).Format(time.RFC3339))
			}
		}
	}
	return &api.Response{Status: a.status, Header: header, Body: body}
}
