package tracing

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/authentication/user"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	jane    = &user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated"}}
	admin   = &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
	scraper = &user.DefaultInfo{Name: "prometheus", Groups: []string{"system:authenticated", "system:monitoring"}}
)

const (
	traceID    = "0af7651916cd43dd8448eb211c80319c"
	sampled    = "00-" + traceID + "-b7ad6b7169203331-01"
	notSampled = "00-" + traceID + "-b7ad6b7169203331-00"
)

func get(target string, header ...string) *api.Request {
	path, query, _ := strings.Cut(target, "?")
	r := &api.Request{Method: "GET", Path: path, RawPath: path, RawQuery: query, Host: "gateway:8443", RemoteAddr: "127.0.0.1:5", Proto: "HTTP/1.1"}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// tracer returns a Tracer whose spans are in the exporter once it is closed.
func tracer(rate int32) (*Tracer, *tracetest.InMemoryExporter) {
	spans := &keeping{tracetest.NewInMemoryExporter()}
	return open(Options{
		Config: &tracingapi.TracingConfiguration{SamplingRatePerMillion: &rate}, Service: "s", Instance: "i", Logger: slog.New(slog.DiscardHandler),
	}, spans), spans.InMemoryExporter
}

// keeping is an exporter whose spans are there after its shutdown.
type keeping struct{ *tracetest.InMemoryExporter }

// Shutdown implements sdktrace.SpanExporter.
func (keeping) Shutdown(context.Context) error { return nil }

func finish(t *testing.T, tracer *Tracer, spans *tracetest.InMemoryExporter) tracetest.SpanStubs {
	t.Helper()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return spans.GetSpans()
}

func TestOnlyTrustedClientsChooseTheTrace(t *testing.T) {
	for _, c := range []struct {
		name   string
		user   user.Info
		parent string
		rate   int32
		want   string // none, root, child
		links  int
	}{
		{"no parent", jane, "", million, "root", 0},
		{"sampled parent of anybody, not sampled here", jane, sampled, 0, "none", 0},
		{"sampled parent of anybody", jane, sampled, million, "root", 1},
		{"not sampled parent of anybody", jane, notSampled, million, "root", 1},
		{"sampled parent of an administrator", admin, sampled, 0, "child", 0},
		{"sampled parent of monitoring", scraper, sampled, 0, "child", 0},
		{"not sampled parent of an administrator", admin, notSampled, million, "none", 0},
		{"malformed parent of an administrator", admin, "00-" + traceID, million, "root", 0},
		{"unknown user", nil, sampled, 0, "none", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracer, exported := tracer(c.rate)
			r := get("/version", "Traceparent", c.parent, "Tracestate", "vendor=x")
			span := tracer.Start(Request{Request: r, User: c.user, Began: time.Now()})
			span.Inject(&r.Header)
			passedOn := r.Header.Values("Traceparent")
			if len(passedOn) != 1 || passedOn[0] == c.parent || strings.HasSuffix(passedOn[0], "-01") != (c.want != "none") {
				t.Errorf("passed on: %q", passedOn)
			}
			trusted := c.user == admin || c.user == scraper
			if child := strings.Contains(passedOn[0], traceID); child != (trusted && len(c.parent) == len(sampled)) {
				t.Errorf("passed on: %q", passedOn)
			} else if state := r.Header.Get("Tracestate"); child != (state == "vendor=x") {
				t.Errorf("passed on: tracestate %q", state)
			}
			span.End(200, "gateway", 0)
			spans := finish(t, tracer, exported)
			got, links := "none", 0
			if len(spans) == 1 {
				got, links = "root", len(spans[0].Links)
				if spans[0].Parent.IsValid() {
					got = "child"
				}
			}
			if len(spans) > 1 || got != c.want || links != c.links {
				t.Errorf("%s with %d links, want %s with %d: %+v", got, links, c.want, c.links, spans)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for target, want := range map[string]string{
		"/api/v1/pods":                                "GET /api/v1/pods",
		"/api/v1/namespaces/a/pods/b/log":             "GET /api/v1/namespaces/{:namespace}/pods/{:name}/log",
		"/api/v1/namespaces/a":                        "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}",
		"/apis/apps/v1/namespaces/a/deployments/b":    "GET /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}",
		"/api/v1/nodes?fieldSelector=metadata.name=x": "GET /api/v1/nodes/{:name}",
		"/apis":   "GET",
		"/readyz": "GET",
	} {
		if got := name("GET", get(target).Info()); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func TestAttributes(t *testing.T) {
	tracer, exported := tracer(million)
	began := time.Now().Add(-time.Minute)
	r := get("/api/v1/pods?limit=1", "User-Agent", "curl", "X-Forwarded-For", "192.0.2.1, 192.0.2.2")
	span := tracer.Start(Request{Request: r, User: jane, Began: began, AuditID: "a-b"})
	span.Waited(Freshness, time.Now().Add(-time.Second))
	span.Waited(Freshness, time.Now().Add(-time.Second))
	span.SetReason("history")
	span.End(503, "forwarded", 7)
	got := finish(t, tracer, exported)[0]
	if !got.StartTime.Equal(began) || got.Status.Code != codes.Error {
		t.Errorf("%+v", got)
	}
	values := map[attribute.Key]attribute.Value{}
	for _, a := range got.Attributes {
		values[a.Key] = a.Value
	}
	for key, want := range map[attribute.Key]string{
		"http.request.method": "GET", "http.target": "/api/v1/pods?limit=1", "url.path": "/api/v1/pods", "url.scheme": "https",
		"server.address": "gateway", "server.port": "8443", "network.peer.address": "127.0.0.1", "network.peer.port": "5",
		"client.address": "192.0.2.1", "user_agent.original": "curl", "network.protocol.version": "1.1", "audit-id": "a-b",
		"http.response.status_code": "503", "http.response.body.size": "7", "kubeweir.source": "forwarded", "kubeweir.reason": "history",
	} {
		if values[key].String() != want {
			t.Errorf("%s is %q, want %q", key, values[key].String(), want)
		}
	}
	if waited := values["kubeweir.freshness_seconds"].AsFloat64(); waited < 2 || waited > 60 {
		t.Errorf("waited %v", waited)
	}
	if _, set := values["kubeweir.upstream_seconds"]; set {
		t.Error("it did not wait for the upstream")
	}
}

// TestHostileText: one span whose text is not UTF-8 would lose all spans that are sent with it, and a
// large one would take memory while it waits.
func TestHostileText(t *testing.T) {
	tracer, exported := tracer(million)
	r := get("/api/v1/\xff", "User-Agent", strings.Repeat("a", 1<<20), "X-Forwarded-For", "\xff")
	r.Method = "\xff"
	tracer.Start(Request{Request: r, User: jane}).End(404, "forwarded", 0)
	span := finish(t, tracer, exported)[0]
	size := len(span.Name)
	for _, a := range span.Attributes {
		if text := a.Value.String(); strings.ToValidUTF8(text, "") != text {
			t.Errorf("%s is %q", a.Key, text)
		}
		size += len(a.Value.String())
	}
	if strings.ToValidUTF8(span.Name, "") != span.Name || size > 2*maxValue {
		t.Errorf("%q, %d bytes", span.Name, size)
	}
}

func TestOff(t *testing.T) {
	off, err := Open(Options{})
	if off != nil || err != nil {
		t.Fatal(off, err)
	}
	r := Request{Request: get("/api/v1/pods", "Traceparent", sampled), User: admin}
	allocations := testing.AllocsPerRun(100, func() {
		span := off.Start(r)
		if ctx := span.Context(t.Context()); ctx == nil {
			t.Error("no context")
		}
		span.Inject(&r.Header)
		span.Waited(Freshness, span.Now())
		span.SetReason("x")
		span.End(200, "cached", 1)
	})
	if allocations > 1 || r.Header.Get("Traceparent") != sampled {
		t.Errorf("%v allocations, header %v", allocations, r.Header)
	}
	if err := off.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// stuckExporter is a collector that does not respond.
type stuckExporter struct {
	sdktrace.SpanExporter
	once   sync.Once
	called chan struct{}
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *stuckExporter) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	e.once.Do(func() { close(e.called) })
	<-ctx.Done()
	return ctx.Err()
}

// TestStuckCollector: requests go on, further spans are dropped and counted, and the end does not wait.
func TestStuckCollector(t *testing.T) {
	stuck := &stuckExporter{SpanExporter: tracetest.NewNoopExporter(), called: make(chan struct{})}
	reg, rate := prometheus.NewRegistry(), int32(million)
	tracer := open(Options{Config: &tracingapi.TracingConfiguration{SamplingRatePerMillion: &rate}, Registerer: reg, Logger: slog.New(slog.DiscardHandler)}, stuck)
	const spans = maxQueued + 100
	for range spans {
		tracer.Start(Request{Request: get("/version"), User: jane}).End(200, "gateway", 0)
	}
	<-stuck.called
	want := `
# HELP kubeweir_tracing_spans_total Sampled spans by result: exported, failed (the collector did not accept them), dropped (the queue was full).
# TYPE kubeweir_tracing_spans_total counter
kubeweir_tracing_spans_total{result="dropped"} 100
kubeweir_tracing_spans_total{result="exported"} 0
kubeweir_tracing_spans_total{result="failed"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubeweir_tracing_spans_total"); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Close(ended); err == nil {
		t.Error("spans were sent")
	}
	want = strings.ReplaceAll(want, `"failed"} 0`, `"failed"} 2048`)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubeweir_tracing_spans_total"); err != nil {
		t.Error(err)
	}
}

// TestUnreachableCollector: opening and tracing do not wait for it, and the end waits no longer than
// its caller allows.
func TestUnreachableCollector(t *testing.T) {
	nobody, rate := "127.0.0.1:1", int32(million)
	tracer, err := Open(Options{
		Config: &tracingapi.TracingConfiguration{Endpoint: &nobody, SamplingRatePerMillion: &rate}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start(Request{Request: get("/version"), User: jane}).End(200, "gateway", 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_ = tracer.Close(ctx)
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCarrierKeys(t *testing.T) {
	r := get("/", "Traceparent", sampled, "Accept", "*/*")
	if keys := (carrier{&r.Header}).Keys(); !slices.Equal(keys, []string{"Traceparent", "Accept"}) {
		t.Error(keys)
	}
}

func BenchmarkSpan(b *testing.B) {
	for name, rate := range map[string]int32{"sampled": million, "not sampled": 0} {
		b.Run(name, func(b *testing.B) {
			tracer, _ := tracer(rate)
			defer func() { _ = tracer.Close(b.Context()) }()
			r := get("/api/v1/namespaces/default/pods/a?resourceVersion=0", "User-Agent", "curl")
			b.ReportAllocs()
			for b.Loop() {
				span := tracer.Start(Request{Request: r, User: jane, AuditID: "a"})
				span.Inject(&r.Header)
				span.End(200, "cached", 100)
			}
		})
	}
}
