package proxy

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

// BenchmarkServe is one request's way through the gateway but for its transport.
func BenchmarkServe(b *testing.B) { benchmarkServe(b, newGatewayBench(b, nil)) }

// BenchmarkServeTraced is BenchmarkServe with tracing, of every request and of none.
func BenchmarkServeTraced(b *testing.B) {
	for name, rate := range map[string]int32{"sampled": always, "not-sampled": 0} {
		b.Run(name, func(b *testing.B) {
			bench, _ := tracedBench(b, rate, nil)
			benchmarkServe(b, bench)
		})
	}
}

// constantFlow classifies all requests alike, at no cost (package fairness has a benchmark of its own).
type constantFlow struct{ Fairness }

func (constantFlow) Classify(user.Info, *api.RequestInfo) (schema, level string, full bool) {
	return "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a", "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3b", false
}

func (constantFlow) Serve(_ context.Context, _ user.Info, _ *api.Request, serve func()) *api.Response {
	serve()
	return nil
}

// BenchmarkServeClassified is BenchmarkServe with priority and fairness.
func BenchmarkServeClassified(b *testing.B) {
	benchmarkServe(b, newGatewayBench(b, func(o *Options) { o.Fairness = constantFlow{} }))
}

func benchmarkServe(b *testing.B, bench *gatewayBench) {
	for _, name := range []string{"a", "b", "c"} {
		bench.source.Create(cachetest.Pods, cachetest.Pod("default/"+name, ""))
	}
	for _, c := range []struct{ name, line string }{
		{"get", "GET /api/v1/namespaces/default/pods/a?resourceVersion=0"},
		{"list", "GET /api/v1/pods?resourceVersion=0"},
		{"list-selector", "GET /api/v1/namespaces/default/pods?resourceVersion=0&labelSelector=app%3Dx"},
		{"watch", "GET /api/v1/pods?watch=true&resourceVersion=0"},
		{"forwarded", "GET /api/v1/namespaces/default/pods/a/log"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp := bench.gateway.Serve(b.Context(), request(c.line))
				if resp.Stream != nil {
					resp.Stream.Stop()
				}
				resp.Done(0, nil)
			}
		})
	}
}
