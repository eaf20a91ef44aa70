package security

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestDifferentRequestsDoNotTakeTheMemory checks that requests which differ only in an unknown
// parameter are not coalesced, that all of them are served, and that the memory of their responses
// is bounded.
func TestDifferentRequestsDoNotTakeTheMemory(t *testing.T) {
	g := startGateway(t, "--collapsed-body-bytes", "600Ki")
	ctx := deadline(t, time.Minute)
	const path = "/api/v1/namespaces/default/configmaps"
	body := fmt.Sprintf(`{"metadata":{"name":"collapsed"},"data":{"x":%q}}`, strings.Repeat("x", 500<<10))
	if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", path, body); a.status != 201 {
		t.Fatal(a)
	}
	t.Cleanup(func() {
		do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", path+"/collapsed", "")
	})
	want := do(ctx, t, kube.URL(), kube.AdminToken(), "GET", path+"/collapsed", "")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", fmt.Sprintf("%s/collapsed?x=%d", path, i), ""); a.body != want.body {
				t.Errorf("response %d: %.200s", i, a)
			}
		})
	}
	responded := make(chan struct{})
	go func() { wg.Wait(); close(responded) }()
	bounded := func(m realkube.Metrics) bool {
		return m.Sum("kubeweir_collapsed_bytes", nil) <= m.Sum("kubeweir_collapsed_bytes_limit", nil)
	}
	poll(ctx, t, "all are answered", func() bool {
		m, err := g.Metrics(ctx)
		must(t, err)
		if !bounded(m) {
			t.Error("the responses hold more memory than the limit")
		}
		select {
		case <-responded:
			return m.Sum("kubeweir_collapsed_bytes", nil) == 0
		default:
			return false
		}
	})
}
