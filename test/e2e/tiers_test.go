package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const tierWrites = 600

// TestTiers runs informers behind two gateways, one in front of the other, and kills the upper one
// repeatedly. The lower one keeps serving its cache, and in the end every informer holds the same
// objects as kube-apiserver.
func TestTiers(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	namespaces := []string{"tiers-1", "tiers-2"}
	resources := []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource}
	createNamespaces(ctx, t, namespaces...)
	regional := startGateway(t, "--shutdown-drain=1s")
	site := bed.StartGateway(t, realkube.GatewayOptions{Upstream: regional.URL()})
	upstream, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)

	followers := newFollowers(t, site.AdminConfig(), resources...)
	runFollowers(ctx, t, followers)
	direct, through := kube.AdminConfig(), site.AdminConfig()
	all := newWriters(t, soak.Seed(t), resources, namespaces, direct, http1(direct), through)
	for _, d := range []disturbance{
		nothing(),
		{"the upper gateway is killed and started", killTier(t, regional, site)},
		{"the upper gateway and kube-apiserver are killed, etcd's history is dropped, both are started", func(ctx context.Context, _ *realkube.Gateway) error {
			regional.Kill()
			for _, d := range []disturbance{compact(), killUpstream()} {
				if err := d.do(ctx, nil); err != nil {
					return err
				}
			}
			return regional.Start(ctx)
		}},
	} {
		began := time.Now()
		must(t, disturb(ctx, site, all, tierWrites, d))
		wrote := time.Since(began)
		began = time.Now()
		for _, resource := range resources {
			want, err := versionsOf(ctx, upstream, resource)
			must(t, err)
			for _, f := range followers {
				if f.resource == resource {
					eventually(ctx, t, catchUp, func() error { return f.equals(want) })
				}
			}
		}
		t.Logf("%s: writes took %s, clients had caught up %s later", d.name, wrote.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
	t.Logf("failed requests of informers: %v", failures(followers))
	for _, f := range followers {
		for _, what := range f.wrong() {
			t.Errorf("%s: %s", f.name, what)
		}
	}
}

// killTier kills the upper gateway, checks the responses of the lower one, and restarts the upper
// one.
func killTier(t *testing.T, upper, lower *realkube.Gateway) func(context.Context, *realkube.Gateway) error {
	t.Helper()
	c := newClient(t, "site", lower.URL(), as(realkube.Admin), true)
	expect := func(ctx context.Context, path string, status int) error {
		a, err := c.send(ctx, request{path: path})
		if err == nil && a.status != status {
			err = fmt.Errorf("%s: %s, want %d", path, a, status)
		}
		return err
	}
	return func(ctx context.Context, _ *realkube.Gateway) error {
		if err := expect(ctx, "/api/v1/pods?resourceVersion=0", http.StatusOK); err != nil { // the lower gateway now has the client's decisions
			return err
		}
		upper.Kill()
		var requested sync.WaitGroup
		var cached, strict error
		requested.Go(func() { cached = expect(ctx, "/api/v1/pods?resourceVersion=0", http.StatusOK) })
		requested.Go(func() { strict = expect(ctx, "/api/v1/pods", http.StatusServiceUnavailable) })
		requested.Wait()
		if err := upper.Start(ctx); err != nil {
			return err
		}
		if cached != nil || strict != nil {
			return fmt.Errorf("the lower gateway without its upstream: %v; %v", cached, strict)
		}
		return expect(ctx, "/api/v1/pods", http.StatusOK)
	}
}
