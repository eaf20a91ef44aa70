package proxy

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// TestReadsRefusedToTheGatewayAreForwarded: a gateway that may not read something answers
// as the client, and costs the upstream no second request for each.
func TestReadsRefusedToTheGatewayAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		refusal := apierrors.NewForbidden(cachetest.Pods.GroupResource(), "", nil)
		b.source.Fail("list", slices.Repeat([]error{refusal}, 50)...)
		var own, client int
		b.upstream.answer = func(r *api.Request) *api.Response {
			if last := b.upstream.forwarded[len(b.upstream.forwarded)-1]; last.as == (upstream.Credentials{As: upstream.AsGateway}) {
				own++
				return &api.Response{Status: 403, Body: []byte(refusal.Error())}
			}
			client++
			return &api.Response{Status: 200, Body: []byte("upstream")}
		}
		ask := func() {
			t.Helper()
			for _, line := range []string{"GET /api/v1/pods", "GET /api/v1/namespaces/default/pods/a", "GET /api/v1/pods?resourceVersion=0", "GET /api/v1/namespaces/b/pods"} {
				if status, body, _ := b.do(line); status != 200 || body != "upstream" {
					t.Errorf("%s: %d %s", line, status, body)
				}
			}
		}
		for range 10 {
			ask()
		}
		if own != 2 || client != 40 {
			t.Errorf("%d requests as the gateway, want a list and a get; %d as the client, want 40", own, client)
		}
		time.Sleep(refusedFor)
		ask()
		if own != 4 {
			t.Errorf("%d requests as the gateway, want each to be tried again", own)
		}
	})
}
