package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

func TestMetrics(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path == "/odd" {
			w.WriteHeader(777)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	})
	registry := prometheus.NewRegistry()
	c := s.client(t, func(o *Options) { o.Registerer = registry })
	ctx := testContext(t)
	c.Forward(ctx, request("GET", "/"), Credentials{})
	c.Forward(ctx, request("MADE-UP", "/"), Credentials{As: AsGateway})
	c.Forward(ctx, request("POST", "/gone"), Credentials{As: AsGateway, KeepImpersonation: true})
	c.Forward(ctx, request("GET", "/odd"), Credentials{})
	_, _ = c.Source().List(ctx, pods(), api.JSON, source.ListOptions{}, nil)
	want := `
# HELP kubeweir_upstream_requests_total Requests to the upstream by purpose, method and status code; code is 0 without a response.
# TYPE kubeweir_upstream_requests_total counter
kubeweir_upstream_requests_total{code="403",method="GET",purpose="client"} 1
kubeweir_upstream_requests_total{code="700",method="GET",purpose="client"} 1
kubeweir_upstream_requests_total{code="403",method="GET",purpose="list"} 1
kubeweir_upstream_requests_total{code="403",method="other",purpose="own"} 1
kubeweir_upstream_requests_total{code="0",method="POST",purpose="impersonate"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubeweir_upstream_requests_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if _, err := New(Options{Config: s.config(), Registerer: registry}); err == nil {
		t.Error("two upstreams share their metrics")
	}
}
