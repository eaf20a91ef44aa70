package transcode

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/proxy/inflight"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

const (
	// maxTranscodedBody is the largest body of a request that is transcoded: what kube-apiserver
	// accepts. bodyCost is how many times its size the body takes in memory: as it was read, with
	// the spare capacity of the buffer, and in JSON, where a byte of CBOR may become six.
	maxTranscodedBody = 3 << 20
	bodyCost          = 8
	// maxTranscodedAnswer is the largest response that is transcoded, for clients that accept CBOR
	// only, and maxTranscodedAnswers how many at a time, which users share. Larger ones are lists,
	// which the cache serves.
	maxTranscodedAnswer  = 8 << 20
	maxTranscodedAnswers = 16
	// lackingFor is how long an upstream that rejected CBOR is sent JSON at once.
	lackingFor = 10 * time.Minute
)

// Forwarder sends requests to the upstream.
type Forwarder interface {
	Forward(ctx context.Context, r *api.Request, as upstream.Credentials) *api.Response
}

// Transcoder forwards requests of clients that speak CBOR to an upstream that may not. It sends a
// request in CBOR first. If the upstream rejects that (415, 406), before it has done anything, it
// sends the request in JSON. Clients that accept JSON beside CBOR get JSON.
type Transcoder struct {
	next Forwarder
	now  func() time.Time
	// lacking is the time until which the upstream is taken to lack CBOR, in nanoseconds since
	// 1970.
	lacking          atomic.Int64
	answers, watches *inflight.Limiter
	transcoded       *prometheus.CounterVec
}

// transcodedKind is the value of the label kind.
type transcodedKind string

const (
	requestBody transcodedKind = "request"
	wholeAnswer transcodedKind = "answer"
	watchEvent  transcodedKind = "event"
)

func New(next Forwarder, now func() time.Time, registerer prometheus.Registerer) *Transcoder {
	f := &Transcoder{
		next: next, now: now,
		answers: inflight.New(maxTranscodedAnswers, inflight.Overload{}, inflight.Overload{}),
		watches: inflight.New(maxTranscodedWatches, inflight.Overload{}, inflight.Overload{}),
		transcoded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_transcoded_total",
			Help: "Bodies transcoded because the upstream lacks CBOR: requests from CBOR to JSON, responses and events of forwarded watches from JSON to CBOR, by kind (request, answer, event) and result (ok; error: rejected or broken off because it is malformed or too large; busy: rejected with 429 because too many are being transcoded).",
		}, []string{"kind", "result"}),
	}
	if registerer != nil {
		registerer.MustRegister(f.transcoded)
	}
	return f
}

// count counts what was transcoded, or failed to be because of err.
func (f *Transcoder) count(kind transcodedKind, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	f.transcoded.WithLabelValues(string(kind), result).Inc()
}

// transcoding has what must be in JSON in a request for an upstream that lacks CBOR.
type transcoding struct {
	contentType string // of the body; "" without one in CBOR
	accept      string // "" where the client accepts JSON
	body        []byte // as it came
}

// transcodingOf returns what is in CBOR in r; ok is false if nothing is. A body in another encoding is
// not sent twice.
func transcodingOf(r *api.Request) (t transcoding, ok bool) {
	hasBody := r.Body != nil && r.ContentLength != 0
	answered := !r.Info().LongRunning() || r.Info().Verb == "watch"
	if hasBody && answered { // who answers otherwise may have done it all the same
		t.contentType, _ = inJSON(r.Header.Get("Content-Type"))
	}
	if r.Method != "HEAD" && r.Info().Resource != "" && answered && (t.contentType != "" || !hasBody) {
		t.accept, _ = acceptInJSON(r.Header.Get("Accept"))
	}
	return t, r.Upgrade == "" && (t.contentType != "" || t.accept != "")
}

// inJSON returns the JSON media type of a body in CBOR. Apply patches are sent as YAML, of which JSON
// is a subset.
func inJSON(contentType string) (jsonType string, ok bool) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(mediaType) {
	case "application/cbor":
		return "application/json", true
	case "application/apply-patch+cbor":
		return "application/apply-patch+yaml", true
	}
	return "", false
}

// acceptInJSON returns the Accept header in JSON of a client that accepts CBOR only. No server has
// Tables in CBOR.
func acceptInJSON(accept string) (rewritten string, ok bool) {
	if strings.Contains(accept, "as=Table") || !api.OnlyCBOR(accept) {
		return "", false
	}
	return strings.ReplaceAll(accept, "application/cbor", "application/json"), true
}

// Forward forwards a request of a user. Users share the slots for responses fairly.
func (f *Transcoder) Forward(ctx context.Context, r *api.Request, as upstream.Credentials, user string) *api.Response {
	t, ok := transcodingOf(r)
	if !ok {
		return f.next.Forward(ctx, r, as)
	}
	if t.contentType != "" {
		var err error
		if t.body, err = readBody(r); err != nil {
			return f.refuse(r, err)
		}
	}
	if f.now().UnixNano() < f.lacking.Load() {
		return f.forwardInJSON(ctx, r, as, user, &t)
	}
	resp := f.next.Forward(ctx, response.WithBody(r, t.body), as)
	if !isRefused(resp) {
		return resp
	}
	response.Discard(resp)
	if resp = f.forwardInJSON(ctx, r, as, user, &t); !isRefused(resp) {
		f.lacking.Store(f.now().Add(lackingFor).UnixNano())
	}
	return resp
}

// Bytes returns how many bytes the body of a request takes while it is transcoded, 0 for one that is
// streamed.
func Bytes(r *api.Request) int64 {
	if r.Body == nil {
		return 0
	}
	if t, ok := transcodingOf(r); !ok || t.contentType == "" {
		return 0
	}
	if r.ContentLength < 0 || r.ContentLength > maxTranscodedBody {
		return bodyCost * maxTranscodedBody // of a larger one no more is read
	}
	return bodyCost * r.ContentLength
}

// isRefused reports whether the upstream rejected the encoding of a request or response.
func isRefused(resp *api.Response) bool {
	return resp.Status == 406 || resp.Status == 415
}

// forwardInJSON forwards r in JSON.
func (f *Transcoder) forwardInJSON(ctx context.Context, r *api.Request, as upstream.Credentials, user string, t *transcoding) *api.Response {
	again := response.WithBody(r, nil)
	if t.contentType != "" {
		text, err := bodyInJSON(t.body)
		f.count(requestBody, err)
		if err != nil {
			return f.refuse(r, err)
		}
		again = response.WithBody(r, text)
		again.Header.Set("Content-Type", t.contentType)
	}
	if t.accept == "" {
		return f.next.Forward(ctx, again, as)
	}
	places, kind := f.answers, wholeAnswer
	if r.Info().Verb == "watch" {
		places, kind = f.watches, watchEvent
	}
	if !places.Acquire(user, 1) {
		f.transcoded.WithLabelValues(string(kind), "busy").Inc()
		return inflight.Rejected()
	}
	again.Header.Set("Accept", t.accept)
	again.Header.Del("Accept-Encoding")
	resp := f.inCBOR(r, f.next.Forward(ctx, again, as))
	done := resp.Done
	resp.Done = func(n int64, err error) {
		places.Release(user, 1)
		if done != nil {
			done(n, err)
		}
	}
	return resp
}

func (f *Transcoder) refuse(r *api.Request, err error) *api.Response {
	return api.StatusResponse(err, api.NegotiateStatus(r.Header.Get("Accept"), false))
}

// readBody reads the body of a request, which is one object or patch.
func readBody(r *api.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxTranscodedBody+1))
	switch {
	case err != nil:
		return nil, apierrors.NewBadRequest("reading the request's body: " + err.Error())
	case len(body) > maxTranscodedBody:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxTranscodedBody))
	}
	return body, nil
}

// bodyInJSON returns a body in CBOR as JSON.
func bodyInJSON(body []byte) ([]byte, error) {
	text, err := cbor.AppendJSON(nil, body, cbor.Untyped)
	if err == nil {
		if shape := shapeOf(text); shape != cbor.Untyped {
			text, err = cbor.AppendJSON(text[:0], body, shape)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the object provided is unrecognized: unable to determine group/version/kind: " + err.Error())
	}
	return text, nil
}

// shapeOf returns the shape of the type that an object in JSON names.
func shapeOf(text []byte) cbor.Shape {
	var t metav1.TypeMeta
	if json.Unmarshal(text, &t) != nil {
		return cbor.Untyped
	}
	return cbor.ShapeOf(schema.FromAPIVersionAndKind(t.APIVersion, t.Kind))
}

// inCBOR returns a response in JSON in CBOR, and any other as it is.
func (f *Transcoder) inCBOR(r *api.Request, resp *api.Response) *api.Response {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if mediaType != "application/json" || resp.Upgrade != nil || isRefused(resp) {
		return resp
	}
	if resp.Stream != nil {
		resp.Header.Set("Content-Type", cbor.Framing{}.StreamType())
		resp.Stream = &response.RewrittenStream{Stream: resp.Stream, By: func(w api.StreamWriter) api.StreamWriter {
			return &response.EventRewriter{StreamWriter: w, Rewrite: f.eventInCBOR, Failed: f.failedInCBOR}
		}}
		return resp
	}
	text, err := response.ReadBody(resp, maxTranscodedAnswer)
	if err != nil {
		f.count(wholeAnswer, err)
		return f.refuse(r, fmt.Errorf("reading the upstream's answer, which is in JSON, to give it in CBOR (accept application/json as well): %w", err))
	}
	if len(text) == 0 {
		return &api.Response{Status: resp.Status, Header: resp.Header}
	}
	item, err := cbor.Append([]byte(cbor.SelfDescribed), text, shapeOf(text))
	f.count(wholeAnswer, err)
	if err != nil {
		return f.refuse(r, fmt.Errorf("giving the upstream's answer in CBOR: %w", err))
	}
	header := append(api.Header(nil), resp.Header...)
	header.Del("Content-Length")
	header.Set("Content-Type", api.CBOR.MediaType())
	return &api.Response{Status: resp.Status, Header: header, Body: item, Length: int64(len(item))}
}
