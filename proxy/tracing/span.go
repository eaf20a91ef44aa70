package tracing

import (
	"context"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Span is the span of one request. Its methods may be called on a nil Span, which records nothing.
// They must not be called concurrently.
type Span struct {
	span  trace.Span
	waits [waits]time.Duration
}

// Wait is what a request waited for.
type Wait uint8

// The waits, each of which is an attribute.
const (
	Nothing       Wait = iota
	Authorization      // the permission of the client
	Collection         // a collection that is starting
	Freshness          // the confirmation that the cache is current
	Read               // the read from the cache, with a wait for a version
	Upstream           // the head of the upstream's response
	waits
)

var waitNames = [waits]attribute.Key{
	Authorization: "kubeweir.authorization_seconds", Collection: "kubeweir.collection_seconds",
	Freshness: "kubeweir.freshness_seconds", Read: "kubeweir.read_seconds", Upstream: "kubeweir.upstream_seconds",
}

// Request describes a request whose client is known.
type Request struct {
	*api.Request
	User    user.Info // the authenticated user, not an impersonated one
	Began   time.Time
	AuditID string
}

// w3c reads and writes traceparent and tracestate.
var w3c propagation.TraceContext

// Start begins the span of a request.
func (t *Tracer) Start(r Request) *Span {
	if t == nil {
		return nil
	}
	ctx := w3c.Extract(context.Background(), carrier{&r.Header})
	options := append(make([]trace.SpanStartOption, 0, 4), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Began))
	if !mayContinue(r.User) {
		options = append(options, trace.WithNewRoot())
		if parent := trace.SpanContextFromContext(ctx); parent.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: parent.WithTraceState(trace.TraceState{})}))
		}
	}
	_, span := t.tracer.Start(ctx, r.Method, options...)
	if span.IsRecording() {
		span.SetName(valid(name(r.Method, r.Info())))
		span.SetAttributes(r.attributes()...)
	}
	return &Span{span: span}
}

// mayContinue reports whether the span of a client's request is a child of the span that the client
// names.
func mayContinue(u user.Info) bool {
	return u != nil && slices.ContainsFunc(u.GetGroups(), func(group string) bool {
		return group == user.SystemPrivilegedGroup || group == user.MonitoringGroup
	})
}

// name returns the name of a span, without names of namespaces and objects.
func name(method string, info *api.RequestInfo) string {
	if !info.IsResourceRequest {
		return method
	}
	var b strings.Builder
	b.WriteString(method + " /" + info.APIPrefix)
	if info.APIGroup != "" {
		b.WriteString("/" + info.APIGroup)
	}
	b.WriteString("/" + info.APIVersion)
	if info.Namespace != "" {
		b.WriteString("/namespaces/{:namespace}")
	}
	b.WriteString("/" + info.Resource)
	if info.Name != "" {
		b.WriteString("/{:name}")
	}
	if info.Subresource != "" {
		b.WriteString("/" + info.Subresource)
	}
	return b.String()
}

// maxValue is up to how many bytes an attribute takes: queued spans have a bound, and a batch of them is smaller
// than gRPC's limit of 4 MiB.
const maxValue = 512

// valid returns a part of a client's text that OTLP accepts: one span with invalid UTF-8 would lose all
// spans that are sent with it. It is a copy, because a part would retain the whole header.
func valid(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxValue)]), "\ufffd")
}

// attributes returns the attributes that kube-apiserver gives a span at its start.
func (r *Request) attributes() []attribute.KeyValue {
	scheme, target := "https", r.RawPath
	if r.Listener == api.ListenerSidecar {
		scheme = "http"
	}
	if r.RawQuery != "" {
		target += "?" + r.RawQuery
	}
	host, hostPort := splitHostPort(r.Host)
	peer, peerPort := splitHostPort(r.RemoteAddr)
	client, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
	if client == "" {
		client = peer
	}
	_, version, _ := strings.Cut(r.Proto, "/")
	out := make([]attribute.KeyValue, 0, 16)
	for key, value := range map[attribute.Key]string{
		"http.request.method": r.Method, "http.target": target, "url.scheme": scheme, "url.path": r.Path, "audit-id": r.AuditID,
		"server.address": host, "network.protocol.version": version, "network.peer.address": peer, "client.address": client,
		"user_agent.original": r.Header.Get("User-Agent"),
	} {
		if value != "" {
			out = append(out, key.String(valid(value)))
		}
	}
	for key, port := range map[attribute.Key]int{"server.port": hostPort, "network.peer.port": peerPort} {
		if port > 0 {
			out = append(out, key.Int(port))
		}
	}
	return out
}

// splitHostPort returns 0 for a missing port.
func splitHostPort(address string) (string, int) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return strings.Trim(address, "[]"), 0
	}
	n, _ := strconv.Atoi(port)
	return host, n
}

// Context returns ctx with the span, so that libraries make their spans its children.
func (s *Span) Context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Inject makes the span the parent in the header of a request to the upstream. On a nil Span, the
// client's own lines stay.
func (s *Span) Inject(h *api.Header) {
	if s == nil {
		return
	}
	h.Del("Tracestate")
	w3c.Inject(trace.ContextWithSpan(context.Background(), s.span), carrier{h})
}

// Now returns the time, for Waited, if the span is recorded.
func (s *Span) Now() (now time.Time) {
	if s != nil && s.span.IsRecording() {
		now = time.Now()
	}
	return now
}

// Waited adds the time since a call of Now to what the request waited for.
func (s *Span) Waited(what Wait, since time.Time) {
	if s != nil && what != Nothing && !since.IsZero() {
		s.waits[what] += max(time.Since(since), 1)
	}
}

// SetReason records why the request was forwarded or rejected, a label of package reason.
func (s *Span) SetReason(reason string) {
	if s != nil {
		s.span.SetAttributes(attribute.String("kubeweir.reason", reason))
	}
}

// End ends the span with the status, source and size of the response.
func (s *Span) End(status int, source string, size int64) {
	if s == nil {
		return
	}
	if s.span.IsRecording() {
		out := append(make([]attribute.KeyValue, 0, 3+waits), attribute.Int("http.response.status_code", status), attribute.String("kubeweir.source", source))
		if size > 0 {
			out = append(out, attribute.Int64("http.response.body.size", size))
		}
		for what, waited := range s.waits {
			if waited > 0 {
				out = append(out, waitNames[what].Float64(waited.Seconds()))
			}
		}
		s.span.SetAttributes(out...)
		if status >= 500 {
			s.span.SetStatus(codes.Error, "")
		}
	}
	s.span.End()
}

// carrier implements propagation.TextMapCarrier for a Header.
type carrier struct{ h *api.Header }

// Get implements propagation.TextMapCarrier. It returns a copy, because a part would retain the whole header.
func (c carrier) Get(key string) string { return strings.Clone(c.h.Get(key)) }

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { c.h.Set(textproto.CanonicalMIMEHeaderKey(key), value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, len(*c.h))
	for i, f := range *c.h {
		keys[i] = f.Name
	}
	return keys
}
