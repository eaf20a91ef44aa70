package proxy

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/inflight"
)

// testFairness has a flow schema for each user and a priority level for each verb.
type testFairness struct {
	full, rejects bool
	served        []string // users whose requests took a seat
}

func (f *testFairness) Classify(u user.Info, r *api.RequestInfo) (schema, level string, full bool) {
	return "schema of " + u.GetName(), "level of " + r.Verb, f.full
}

func (f *testFairness) Serve(_ context.Context, u user.Info, _ *api.Request, serve func()) *api.Response {
	if f.rejects {
		return inflight.Rejected()
	}
	f.served = append(f.served, u.GetName())
	serve()
	return nil
}

// flowsOf returns the values of both headers.
func flowsOf(h api.Header) string {
	return strings.Join(append(h.Values(schemaHeader), h.Values(levelHeader)...), ", ")
}

// upstreamFlow is a response of an upstream with priority and fairness.
func upstreamFlow(*api.Request) *api.Response {
	return &api.Response{Status: 200, Body: []byte("{}"), Header: api.Header{
		{Name: "Content-Type", Value: "application/json"},
		{Name: schemaHeader, Value: "schema of the upstream"}, {Name: levelHeader, Value: "level of the upstream"},
	}}
}

func TestResponsesNameTheFlow(t *testing.T) {
	fairness := &testFairness{}
	b := newGatewayBench(t, func(o *Options) { o.Fairness = fairness })
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	b.upstream.response = upstreamFlow
	for _, c := range []struct {
		name, line, header string
		status             int
		flow               string
	}{
		{"cached get", "GET /api/v1/namespaces/default/pods/a?resourceVersion=0", "", 200, "schema of admin, level of get"},
		{"cached list", "GET /api/v1/pods?resourceVersion=0", "", 200, "schema of admin, level of list"},
		{"watch", "GET /api/v1/pods?watch=true&resourceVersion=0", "", 200, "schema of admin, level of watch"},
		{"not found", "GET /api/v1/namespaces/default/pods/b?resourceVersion=0", "", 404, "schema of admin, level of get"},
		{"impersonated", "GET /api/v1/pods?resourceVersion=0", "Impersonate-User: jane", 200, "schema of jane, level of list"},
		{"coalesced", "GET /api/v1/namespaces/default/pods/a", "", 200, "schema of admin, level of get"},
		{"coalesced, impersonated", "GET /api/v1/namespaces/default/pods/a", "Impersonate-User: jane", 200, "schema of jane, level of get"},
		{"forwarded", "POST /api/v1/namespaces/default/pods", "", 200, "schema of the upstream, level of the upstream"},
		{"unauthenticated", "GET /api/v1/pods?resourceVersion=0", "Authorization: Bearer bad", 401, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			if status, body, h := b.do(c.line, headers...); status != c.status || flowsOf(h) != c.flow {
				t.Errorf("%d, %q: %s", status, flowsOf(h), body)
			}
		})
	}
	if got := strings.Join(fairness.served, " "); got != "admin jane" {
		t.Errorf("requests of %q took a seat, want those that were coalesced", got)
	}
}

// TestReadsWaitForASeat: reads from memory take a seat if the priority level has no free one.
func TestReadsWaitForASeat(t *testing.T) {
	fairness := &testFairness{full: true}
	b := newGatewayBench(t, func(o *Options) { o.Fairness = fairness })
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	lines := []string{"GET /api/v1/namespaces/default/pods/a?resourceVersion=0", "GET /api/v1/pods?resourceVersion=0", "GET /api/v1/pods?watch=true&resourceVersion=0"}
	for _, line := range lines {
		if status, body, _ := b.do(line); status != 200 {
			t.Errorf("%s: %d %s", line, status, body)
		}
	}
	if len(fairness.served) != len(lines) {
		t.Errorf("requests of %q took a seat", fairness.served)
	}
	fairness.rejects = true
	for _, line := range lines {
		if status, body, h := b.do(line); status != 429 || !strings.Contains(body, atOnce) || !strings.HasPrefix(flowsOf(h), "schema of admin, level of ") {
			t.Errorf("%s: %d %s, %q", line, status, body, flowsOf(h))
		}
	}
}

// TestWithoutFairness: in front of a cluster, only its own responses name the flow.
func TestWithoutFairness(t *testing.T) {
	b := newGatewayBench(t, nil)
	b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
	b.upstream.response = upstreamFlow
	for line, want := range map[string]string{
		"GET /api/v1/pods?resourceVersion=0":         "",
		"GET /api/v1/namespaces/default/pods/a":      "schema of the upstream, level of the upstream",
		"POST /api/v1/namespaces/default/pods":       "schema of the upstream, level of the upstream",
		"GET /api/v1/pods?watch=1&resourceVersion=0": "",
	} {
		if status, _, h := b.do(line); status != 200 || flowsOf(h) != want {
			t.Errorf("%s: %d, %q, want %q", line, status, flowsOf(h), want)
		}
	}
}
