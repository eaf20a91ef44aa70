package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authz/responses"
	"github.com/kubeweir/kubeweir/proxy/inflight"
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
	// maxSavedDocument and maxSavedDocuments are that of the documents of all groups: 64 MiB at
	// most, of compressed ones as a rule 4 MiB. As many are read or written at a time at most,
	// which users share; what exceeds that is forwarded, and passed on as it comes.
	maxSavedDocument  = 1 << 20
	maxSavedDocuments = 64
)

// savedResponse is a response of the upstream to one user. It is shared and must not be changed.
type savedResponse struct {
	status int
	header api.Header
	body   []byte
	at     time.Time
	// times are the offsets of the timestamps in the body, see timestampsIn.
	times []int
	// places, if there are any, has one for the answer while responses made of it are not done:
	// users of them. It is user's.
	places *inflight.Limiter
	user   string
	users  atomic.Int64
}

// answers are what is remembered, cacheEntry one of those.
type (
	answers    = responses.Cache[*savedResponse]
	cacheEntry = responses.Response[*savedResponse]
)

// cachedOrFetched responds with what the upstream responded to the same request of the same user,
// acting as the same user, recently or to concurrent requests. So the response is the upstream's
// own, whatever the request and its form are. If it returns nil, the request must be forwarded.
func (g *Gateway) cachedOrFetched(ctx context.Context, x *exchange, from *answers, question [sha256.Size]byte, ask func(context.Context) (cacheEntry, error)) *api.Response {
	answer, told, part, err := from.Get(ctx, x.Subject, question, ask)
	if part > 0 && told != responses.Cached {
		x.cost.Requests += part
	}
	switch {
	case errors.Is(err, review.ErrNoReview):
		return g.overBudget(x)
	case err != nil && ctx.Err() != nil:
		return x.fail(err)
	case err != nil, told == responses.Shared && answer.status == 401: // of another token, perhaps
		return nil
	}
	if x.source = sourceOf(told); told != responses.FromUpstream {
		x.Decision.Allowed = answer.status != 401 && answer.status != 403 // to ask
	}
	return answer.response(time.Now())
}

func sourceOf(told responses.Origin) responseSource {
	switch told {
	case responses.Cached:
		return fromCache
	case responses.Shared:
		return fromCollapsed
	}
	return fromUpstream
}

// varyingHeaders are the request headers that a response depends on. User-Agent is one because the
// upstream may record it as the manager of a field.
var varyingHeaders = [...]string{"Accept", "Accept-Encoding", "Content-Type", "Origin", "User-Agent"}

// requestDigest identifies all that a response depends on except the user. state is what it depends
// on besides the request.
func requestDigest(r *api.Request, body []byte, state ...uint64) (d [sha256.Size]byte) {
	h := sha256.New()
	number := func(n uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n)) } // a hash never fails
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = io.WriteString(h, s)
	}
	text(r.Path)
	text(r.RawQuery)
	for _, name := range varyingHeaders {
		values := r.Header.Values(name)
		number(uint64(len(values)))
		for _, v := range values {
			text(v)
		}
	}
	text(string(body))
	for _, n := range state {
		number(n)
	}
	h.Sum(d[:0])
	return d
}

var errNotAnswered = errors.New("there is no answer that can be shared")

// fetchForClient asks as x's client, for all who wait for the answer, of most bytes at most.
func (g *Gateway) fetchForClient(ctx context.Context, x *exchange, question []byte, most int) (*savedResponse, error) {
	r := &api.Request{
		Method: x.Request.Method, Path: x.Request.Path, RawPath: x.Request.RawPath, RawQuery: x.Request.RawQuery,
		Host: x.Request.Host, Proto: x.Request.Proto, Listener: x.Request.Listener,
	}
	if question != nil {
		r.Body, r.ContentLength = bytes.NewReader(question), int64(len(question))
	}
	for _, name := range varyingHeaders {
		for _, v := range x.Request.Header.Values(name) {
			r.Header.Add(name, v)
		}
	}
	r.Header.Add("Audit-Id", x.auditID)
	as, err := g.credentials(x.Subject, &r.Header)
	if err != nil {
		return nil, err
	}
	resp := g.forwards.transcoder.Forward(ctx, r, as, x.user())
	if resp.Stream != nil || resp.Upgrade != nil {
		response.Discard(resp)
		return nil, errNotAnswered
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
	return &savedResponse{status: resp.Status, header: response.SharedHeader(resp.Header), body: body.Bytes(), at: time.Now()}, nil
}

// timestamp finds the times of an answer: when it was made, and since when its fields are
// managed. In a string there is a backslash before each quote.
var timestamp = regexp.MustCompile(`"(?:creationTimestamp|time)": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"`)

// timestampsIn returns the offsets of the timestamps in a response.
func timestampsIn(answer []byte) (at []int) {
	for _, found := range timestamp.FindAllSubmatchIndex(answer, -1) {
		at = append(at, found[2])
	}
	return at
}

// response is the answer as it would be given now: its times are as much later as now is.
func (a *savedResponse) response(now time.Time) *api.Response {
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
	resp := &api.Response{Status: a.status, Header: header, Body: body}
	if a.places != nil {
		if a.users.Add(1) == 1 {
			a.places.Take(a.user, 1)
		}
		resp.Done = func(int64, error) {
			if a.users.Add(-1) == 0 {
				a.places.Release(a.user, 1)
			}
		}
	}
	return resp
}
