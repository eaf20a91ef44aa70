package servers

import (
	"context"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

var rounds = flag.Int("servers.rounds", 1, "how often each fault is tried, each time at the server that feeds go to")

const (
	namespace      = "load"
	informersCount = 10
	readers        = 4
	writers        = 4
	// frozen is how long a server is paused.
	frozen = 5 * time.Second
	// settles is the time between the beginning and the end of a fault.
	settles = 2 * time.Second
)

// start starts three kube-apiservers on one etcd, and a gateway in front of them.
func start(t *testing.T) ([]*realkube.Cluster, *realkube.Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	first, err := realkube.Start(ctx, realkube.Options{EtcdOnly: true})
	must(t, err)
	t.Cleanup(func() { _ = first.Close() })
	all := []*realkube.Cluster{first, nil, nil}
	var starting sync.WaitGroup
	errs := make([]error, len(all))
	starting.Go(func() { errs[0] = first.StartAPIServer(ctx) })
	for i := range all[1:] {
		starting.Go(func() { all[i+1], errs[i+1] = first.StartPeer(ctx) })
	}
	starting.Wait()
	var urls []string
	for _, one := range all[1:] {
		if one != nil {
			t.Cleanup(func() { _ = one.Close() })
		}
	}
	for i, one := range all {
		must(t, errs[i])
		urls = append(urls, one.URL())
	}
	g, err := realkube.StartGateway(ctx, first, "--upstream-servers", strings.Join(urls, ","))
	must(t, err)
	t.Cleanup(g.Close)
	return all, g
}

// fed returns the server that the gateway's reflectors use.
func fed(ctx context.Context, t *testing.T, g *realkube.Gateway, all []*realkube.Cluster) *realkube.Cluster {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	for _, one := range all {
		if m.Sum("kubeweir_upstream_server_preferred", map[string]string{"server": strings.TrimPrefix(one.URL(), "https://")}) == 1 {
			return one
		}
	}
	t.Fatal("the gateway prefers none of the servers")
	return nil
}

// await waits until the gateway considers all servers ready.
func await(ctx context.Context, t *testing.T, g *realkube.Gateway, all []*realkube.Cluster) {
	t.Helper()
	for {
		if m, err := g.Metrics(ctx); err == nil && m.Sum("kubeweir_upstream_server_up", nil) == float64(len(all)) {
			return
		}
		pause(ctx, t, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		t.Fatal("timeout")
	}
}

// TestServersDie kills, stops and freezes in turn the server that the reflectors use, under the
// load of informers, readers and writers.
func TestServersDie(t *testing.T) {
	all, g := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*rounds)*3*time.Minute)
	defer cancel()
	direct := kubernetes.NewForConfigOrDie(all[0].AdminConfig())
	_, err := direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)

	l := startLoad(ctx, t, g)
	for round := range *rounds {
		for _, fault := range []struct {
			name       string
			begin, end func(*realkube.Cluster) error
		}{
			{"kill -9", (*realkube.Cluster).KillAPIServer, func(c *realkube.Cluster) error { return c.StartAPIServer(ctx) }},
			{"SIGTERM", func(c *realkube.Cluster) error { return c.StopAPIServer(ctx) }, func(c *realkube.Cluster) error { return c.StartAPIServer(ctx) }},
			{"SIGSTOP", (*realkube.Cluster).PauseAPIServer, func(c *realkube.Cluster) error {
				pause(ctx, t, frozen)
				return c.ResumeAPIServer()
			}},
		} {
			victim := fed(ctx, t, g, all)
			before := l.begin()
			must(t, fault.begin(victim))
			pause(ctx, t, settles)
			must(t, fault.end(victim))
			await(ctx, t, g, all)
			t.Logf("round %d, %s: %s", round+1, fault.name, l.report())
			if n := l.unknowns() - before; n > 0 && fault.name == "SIGTERM" {
				t.Errorf("the outcome of %d writes is unknown after a graceful shutdown", n)
			}
			if fed(ctx, t, g, all) == victim {
				t.Errorf("%s: the reflectors did not move to another server", fault.name)
			}
		}
	}
	l.stop()
	l.judge(ctx, t, direct)
	m, err := g.Metrics(ctx)
	must(t, err)
	t.Logf("%.0f ejections, retries at another server %.0f of %.0f requests",
		m.Sum("kubeweir_upstream_server_ejections_total", nil), m.Sum("kubeweir_upstream_server_retries_total", nil), m.Sum("kubeweir_upstream_server_requests_total", nil))
	if g.Panicked() {
		t.Error("the gateway panicked")
	}
	if t.Failed() {
		log := g.Log()
		t.Logf("the gateway's log ends with\n%s", log[max(0, len(log)-6000):])
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
