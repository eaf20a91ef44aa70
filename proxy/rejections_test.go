package proxy

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// TestReadsDeniedToTheGatewayAreForwarded: a gateway that may not read something answers
// as the client, and costs the upstream no second request for each.
func TestReadsDeniedToTheGatewayAreForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		rejection := apierrors.NewForbidden(cachetest.Pods.GroupResource(), "", nil)
		b.source.Fail("list", slices.Repeat([]error{rejection}, 50)...)
		var own, client int
		b.upstream.response = func(r *api.Request) *api.Response {
			if last := b.upstream.forwarded[len(b.upstream.forwarded)-1]; last.as == (upstream.Credentials{As: upstream.AsGateway}) {
				own++
				return &api.Response{Status: 403, Body: []byte(rejection.Error())}
			}
			client++
			return &api.Response{Status: 200, Body: []byte("upstream")}
		}
		do := func() {
			t.Helper()
			for _, line := range []string{"GET /api/v1/pods", "GET /api/v1/namespaces/default/pods/a", "GET /api/v1/pods?resourceVersion=0", "GET /api/v1/namespaces/b/pods"} {
				if status, body, _ := b.do(line); status != 200 || body != "upstream" {
					t.Errorf("%s: %d %s", line, status, body)
				}
			}
		}
		for range 10 {
			do()
		}
		if own != 3 || client != 40 {
			t.Errorf("%d requests as the gateway, want two lists and a get; %d as the client, want 40", own, client)
		}
		time.Sleep(5 * time.Second)
		do()
		if own != 6 {
			t.Errorf("%d requests as the gateway, want each to be tried again", own)
		}
	})
}

// TestRejectionInOneNamespace: a read that the upstream does not let the gateway share does
// not end the sharing of others, whoever asks for it again and again.
func TestRejectionInOneNamespace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		rejection := apierrors.NewForbidden(cachetest.Pods.GroupResource(), "", nil)
		b.source.Fail("list", slices.Repeat([]error{rejection}, 50)...)
		b.upstream.response = func(r *api.Request) *api.Response {
			last := b.upstream.forwarded[len(b.upstream.forwarded)-1]
			if last.as == (upstream.Credentials{As: upstream.AsGateway}) && r.Info().Namespace == "mallory" {
				return &api.Response{Status: 403, Body: []byte(rejection.Error())}
			}
			return &api.Response{Status: 200, Body: []byte("upstream")}
		}
		for range 3 {
			for _, line := range []string{"GET /api/v1/namespaces/%s/pods", "GET /api/v1/namespaces/%s/pods/a"} {
				if status, _, _ := b.do(strings.ReplaceAll(line, "%s", "mallory")); status != 200 {
					t.Fatalf("%s: %d", line, status)
				}
				b.do(strings.ReplaceAll(line, "%s", "default"))
				if last := b.upstream.forwarded[len(b.upstream.forwarded)-1]; last.as != (upstream.Credentials{As: upstream.AsGateway}) {
					t.Errorf("%s: the upstream was asked as %+v, so for this client alone", line, last.as)
				}
			}
		}
	})
}
