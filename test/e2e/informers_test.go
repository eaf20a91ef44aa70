package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	// catchUp is how long clients may take to reach the current state after the last write. client-go
	// waits up to a minute between attempts after several failures.
	catchUp = 130 * time.Second
)

// A disturbance is a fault during writes.
type disturbance struct {
	name string
	do   func(context.Context, *realkube.Gateway) error
}

func killUpstream() disturbance {
	return disturbance{"kube-apiserver is killed and started", func(ctx context.Context, _ *realkube.Gateway) error {
		if err := kube.KillAPIServer(); err != nil {
			return err
		}
		return kube.StartAPIServer(ctx)
	}}
}

func pauseUpstream() disturbance {
	return disturbance{"kube-apiserver is paused", func(ctx context.Context, _ *realkube.Gateway) error {
		if err := kube.PauseAPIServer(); err != nil {
			return err
		}
		testbed.Wait(ctx, 3*time.Second)
		return kube.ResumeAPIServer()
	}}
}

func stopGateway() disturbance {
	return disturbance{"the gateway is stopped and started", func(ctx context.Context, g *realkube.Gateway) error {
		if err := g.Stop(ctx); err != nil {
			return err
		}
		return g.Start(ctx)
	}}
}

func killGateway() disturbance {
	return disturbance{"the gateway is killed and started", func(ctx context.Context, g *realkube.Gateway) error {
		g.Kill()
		return g.Start(ctx)
	}}
}

func compact() disturbance {
	return disturbance{"etcd's history is dropped", func(ctx context.Context, _ *realkube.Gateway) error {
		rev, err := kube.Revision(ctx)
		if err != nil {
			return err
		}
		return kube.Compact(ctx, rev)
	}}
}

func nothing() disturbance {
	return disturbance{"nothing happens", func(context.Context, *realkube.Gateway) error { return nil }}
}

// TestInformersStayEqual runs many random writes with informers of every kind of client, a
// controller-runtime manager, and clients that read nothing, while kube-apiserver and the gateway
// fail. After each disturbance every informer must hold the same objects as kube-apiserver. A soak
// repeats the disturbances and has more writes.
func TestInformersStayEqual(t *testing.T) {
	ctx := deadline(t, 8*time.Minute)
	namespaces := []string{"informers-1", "informers-2", "informers-3"}
	resources := []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource}
	createNamespaces(ctx, t, namespaces...)
	g := startGateway(t, "--shutdown-drain=1s")
	clients := g.AdminConfig()
	clients.Host = startRelay(t, strings.TrimPrefix(g.URL(), "https://")).url()
	upstream, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)

	followers := newFollowers(t, clients, resources...)
	manager := startManager(ctx, t, clients)
	runFollowers(ctx, t, followers)
	openUnreadWatches(ctx, t, g)

	direct, gateway := kube.AdminConfig(), g.AdminConfig()
	all := newWriters(t, soak.Seed(t), resources, namespaces, direct, direct, direct, direct, http1(direct), gateway)
	plan := []disturbance{nothing(), killUpstream(), stopGateway(), compact(), pauseUpstream(), killGateway()}
	if soak.Enabled() {
		plan = append(plan, killUpstream(), compact(), killUpstream(), stopGateway())
	}
	writes := soak.Cases(250, 1000)
	for i, d := range plan {
		began := time.Now()
		must(t, disturb(ctx, g, all, int64(writes), d))
		wrote := time.Since(began)
		want := map[schema.GroupVersionResource]versions{}
		for _, resource := range resources {
			want[resource], err = versionsOf(ctx, upstream, resource)
			must(t, err)
		}
		began = time.Now()
		soon, cancel := context.WithTimeout(ctx, catchUp)
		for _, f := range followers {
			if err := testbed.Poll(soon, catchUp, func() error { return f.equals(want[f.resource]) }); err != nil {
				t.Fatalf("step %d, %s: %v; failed requests: %v", i, d.name, err, f.calls.failed())
			}
		}
		eventually(ctx, t, catchUp, func() error { return manager.equals(want) })
		cancel()
		t.Logf("%s: writes took %s, clients had caught up %s later", d.name, wrote.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}

	t.Logf("failed requests of informers: %v", failures(followers))
	for _, f := range followers {
		for _, what := range f.wrong() {
			t.Errorf("%s: %s", f.name, what)
		}
		lists, streamed := f.calls.lists.Load(), f.calls.watchLists.Load()
		if f.streamed && streamed == 0 || !f.streamed && (streamed > 0 || lists == 0) {
			t.Errorf("%s: %d lists, %d streaming lists", f.name, lists, streamed)
		}
	}
	if n := manager.reconciled.Load(); n == 0 {
		t.Error("the controller reconciled nothing")
	}
}

// disturb writes, and starts the disturbance after a third of the writes.
func disturb(ctx context.Context, g *realkube.Gateway, all *writers, n int64, d disturbance) error {
	if err := all.write(ctx, n/3); err != nil {
		return err
	}
	var happened sync.WaitGroup
	var err error
	happened.Go(func() { err = d.do(ctx, g) })
	writeErr := all.write(ctx, n-n/3)
	happened.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return writeErr
}

// failures sums up the failed requests of informers.
func failures(followers []*follower) map[string]int {
	out := map[string]int{}
	for _, f := range followers {
		for what, n := range f.calls.failed() {
			out[what] += n
		}
	}
	return out
}

func runFollowers(ctx context.Context, t *testing.T, followers []*follower) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, f := range followers {
		running.Go(func() { f.informer.RunWithContext(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (f *follower) equals(want versions) error {
	if !f.informer.HasSynced() {
		return fmt.Errorf("%s: not synced", f.name)
	}
	if difference := f.held().firstDifference(want); difference != "" {
		return fmt.Errorf("%s: %s (last at version %s)", f.name, difference, f.informer.LastSyncResourceVersion())
	}
	return nil
}

// openUnreadWatches opens watches that nobody reads, so that their events pile up. They end with
// the test or with the gateway.
func openUnreadWatches(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	t.Helper()
	c := newClient(t, "gateway", g.URL(), as(realkube.Admin), false)
	for _, r := range []request{
		{path: "/api/v1/pods?watch=true&resourceVersion=0"},
		{path: "/api/v1/pods?watch=true&resourceVersion=0", accept: typeProto},
		{path: "/api/v1/configmaps?watch=true", accept: typeTable},
	} {
		resp, err := c.open(ctx, r)
		must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", r, resp.Status)
		}
	}
}
