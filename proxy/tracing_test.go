package proxy

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/tracing"
	"github.com/kubeweir/kubeweir/proxy/tracing/tracingtest"
)

// tracedBench returns a gateway that samples a part of the requests, and what ends the tracing and
// returns the spans.
func tracedBench(t testing.TB, samplingRatePerMillion int32, change func(*Options)) (*gatewayBench, func() []tracingtest.Span) {
	t.Helper()
	collector := tracingtest.New(t)
	tracer, err := tracing.Open(tracing.Options{
		Config: &tracingapi.TracingConfiguration{Endpoint: &collector.Endpoint, SamplingRatePerMillion: &samplingRatePerMillion},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Close(context.Background()) })
	b := newGatewayBench(t, func(o *Options) {
		if o.Tracer = tracer; change != nil {
			change(o)
		}
	})
	return b, func() []tracingtest.Span {
		t.Helper()
		if err := tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return collector.Spans()
	}
}

// always samples every request.
const always = 1_000_000

// servedRequest is a request with the span that it must have.
type servedRequest struct {
	line, user, name, source, reason string
	waits                            []string // which it must have
}

// servedRequests are requests in the order in which they are sent.
var servedRequests = []servedRequest{
	{"GET /api/v1/namespaces/default/pods/a?resourceVersion=0", "jane", "GET /api/v1/namespaces/{:namespace}/pods/{:name}", "cached", "", []string{"authorization", "collection", "read"}},
	{"GET /api/v1/pods?resourceVersion=0", "jane", "GET /api/v1/pods", "cached", "", []string{"authorization", "collection", "read"}},
	{"GET /api/v1/pods", "jane", "GET /api/v1/pods", "collapsed", "", []string{"freshness", "upstream"}},
	{"GET /api/v1/widgets", "jane", "GET /api/v1/widgets", "forwarded", "unknown-resource", []string{"upstream"}},
	{"POST /api/v1/namespaces/default/pods", "jane", "POST /api/v1/namespaces/{:namespace}/pods", "forwarded", "", []string{"upstream"}},
	{"POST /api/v1/namespaces/default/pods", "mallory", "POST /api/v1/namespaces/{:namespace}/pods", "gateway", "read-only", nil},
	{"GET /version", "jane", "GET", "forwarded", "", []string{"upstream"}},
	{line: "GET /api/v1/pods", user: "bad"}, // not authenticated, no span, as in kube-apiserver
	{line: "GET /livez", user: "jane"},
}

func TestSpansSayHowRequestsWereServed(t *testing.T) {
	b, spans := tracedBench(t, always, func(o *Options) {
		o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"mallory"}}, Settings: policy.Settings{ReadOnly: policy.Yes}}}
	})
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	for _, r := range servedRequests {
		b.do(r.line, "Authorization: Bearer "+r.user)
	}
	all := spans()
	for _, r := range servedRequests {
		if r.name == "" {
			continue
		}
		if len(all) == 0 {
			t.Fatal("too few spans")
		}
		got := all[0]
		all = all[1:]
		if got.Name != r.name || got.Attributes["kubeweir.source"] != r.source || got.Attributes["kubeweir.reason"] != r.reason || got.Parent != "" {
			t.Errorf("%s %s: %+v", r.line, r.user, got)
		}
		for _, what := range r.waits {
			if got.Attributes["kubeweir."+what+"_seconds"] == "" {
				t.Errorf("%s %s: no wait for %s in %+v", r.line, r.user, what, got)
			}
		}
	}
	if len(all) > 0 {
		t.Errorf("too many spans: %+v", all)
	}
}

func TestSpanOfAWatchEndsWithIt(t *testing.T) {
	b, spans := tracedBench(t, always, nil)
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	resp := b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=true&resourceVersion=0"))
	b.do("GET /api/v1/pods?resourceVersion=0")
	resp.Stream.Stop()
	resp.Done(10, nil)
	all := spans()
	if len(all) != 2 || all[1].Attributes["kubeweir.source"] != "cached" || all[1].Start > all[0].Start || all[1].End < all[0].End {
		t.Errorf("%+v", all)
	}
}

// TestTraceparentIsPassedOn: the upstream sees the request's span as parent, whether it is sampled or
// not, and without tracing the client's own header.
func TestTraceparentIsPassedOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	forwarded := func(b *gatewayBench) api.Header {
		b.do("POST /api/v1/namespaces/default/pods", "Traceparent: "+parent, "Tracestate: vendor=x")
		return b.upstream.forwarded[0].request.Header
	}
	off := forwarded(newGatewayBench(t, nil))
	if !slices.Equal(off.Values("Traceparent"), []string{parent}) || off.Get("Tracestate") != "vendor=x" {
		t.Errorf("without tracing: %v", off)
	}
	b, spans := tracedBench(t, always, nil)
	on := forwarded(b)
	all := spans()
	if len(all) != 1 || on.Has("Tracestate") || !slices.Equal(on.Values("Traceparent"), []string{"00-" + all[0].Trace + "-" + all[0].ID + "-01"}) {
		t.Errorf("with tracing: %v, %+v", on, all)
	}
	if all[0].Parent != "" || !slices.Equal(all[0].Linked, []string{"0af7651916cd43dd8448eb211c80319c"}) {
		t.Errorf("%+v", all)
	}
	b, spans = tracedBench(t, 0, nil)
	if never := forwarded(b).Values("Traceparent"); len(never) != 1 || !strings.HasSuffix(never[0], "-00") || never[0] == parent {
		t.Errorf("not sampled: %v", never)
	}
	if all := spans(); len(all) > 0 {
		t.Errorf("not sampled: %+v", all)
	}
}
