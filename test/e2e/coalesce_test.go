package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// TestInformersOfCoalescedWatches checks informers with coalesced and rate-limited watches under
// random writes: in the end they hold the same objects as kube-apiserver, and they are notified of
// every addition and deletion in order.
func TestInformersOfCoalescedWatches(t *testing.T) {
	const writes = 600
	ctx := deadline(t, 3*time.Minute)
	namespaces := []string{"calm-1", "calm-2"}
	resources := []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource}
	createNamespaces(ctx, t, namespaces...)
	g := startGateway(t, "--coalesce=300ms", "--watch-bytes-per-second=64Ki")
	upstream, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)
	followers := newFollowers(t, g.AdminConfig(), resources...)
	runFollowers(ctx, t, followers)
	coalesced := func() error {
		m, err := g.Metrics(ctx)
		if n := m.Sum("kubeweir_watches_coalescing", nil); err == nil && n < float64(len(followers)) {
			err = fmt.Errorf("%v of %d watches are coalesced", n, len(followers))
		}
		return err
	}
	eventually(ctx, t, catchUp, coalesced)
	direct := kube.AdminConfig()
	all := newWriters(t, soak.Seed(t), resources, namespaces, direct, direct, direct, direct)
	for range 2 {
		must(t, all.write(ctx, writes/2))
		for _, resource := range resources {
			want, err := versionsOf(ctx, upstream, resource)
			must(t, err)
			for _, f := range followers {
				if f.resource != resource {
					continue
				}
				if err := testbed.Poll(ctx, catchUp, func() error { return f.equals(want) }); err != nil {
					t.Fatalf("%s: %v; requests failed with %v", f.name, err, f.calls.failed())
				}
			}
		}
	}
	for _, f := range followers {
		for _, what := range f.wrong() {
			t.Errorf("%s: %s", f.name, what)
		}
		if n := f.lists(); n != 1 {
			t.Errorf("%s listed %d times", f.name, n)
		}
	}
	t.Run("parameter", func(t *testing.T) { testCoalesceParameter(ctx, t, g) })
}

// testCoalesceParameter checks that kubeweir confirms the parameter, or says what is wrong with it.
// kube-apiserver ignores it.
func testCoalesceParameter(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	up, gw := direct(t, as(realkube.Admin)), through(t, g, as(realkube.Admin))
	for _, test := range []struct {
		query, header string
		status        int
		message       string
	}{
		{"coalesce=2s", "2s", http.StatusOK, ""},
		{"coalesce=10ms", "300ms", http.StatusOK, ""},
		{"coalesce=soon", "", http.StatusBadRequest, "parameter coalesce: "},
	} {
		q := request{path: "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0&" + test.query}
		a, err := gw.send(ctx, q)
		must(t, err)
		if a.status != test.status || a.header.Get("Kubeweir-Coalesce") != test.header || !strings.Contains(a.body, test.message) {
			t.Errorf("%s: %v, %v", q, a, a.header)
		}
		if a, err = up.send(ctx, q); err != nil || a.status != http.StatusOK || a.header.Get("Kubeweir-Coalesce") != "" {
			t.Errorf("%s at kube-apiserver: %v, %v", q, a, err)
		}
	}
}
