package e2e

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

var (
	restartProgram = flag.String("restart.program", "", "restart the gateway of this `file` in the tests of restarts, to compare releases")
	restartDirect  = flag.Bool("restart.direct", false, "restart kube-apiserver itself instead of a gateway, to compare them")
	restartCost    = flag.Duration("restart.cost", 0, "after each restart, measure for this `time` what kube-apiserver does")
)

const restartNamespace = "restarts"

var restartResources = []schema.GroupVersionResource{podsResource, configMapsResource, secretsResource, accountsResource, widgetsResource}

// encodings is how many upstream watches observers of a resource need.
func encodings(resource schema.GroupVersionResource) float64 {
	if resource == widgetsResource {
		return 1 // custom resources have no protobuf
	}
	return 2
}

// A fleet is many observers, a writer, and kube-apiserver's own watches of the same views.
type fleet struct {
	observers []*observer
	direct    map[selection]*stream
	before    map[string]float64 // kube-apiserver's watches without the gateway, by resource
	writing   sync.WaitGroup
	stop      context.CancelFunc
}

// startFleet starts observers of a server and 100 writes per second. It returns when all observers
// have synced.
func startFleet(ctx context.Context, t *testing.T, server *rest.Config, before map[string]float64) *fleet {
	t.Helper()
	from, err := kube.Revision(ctx)
	must(t, err)
	f := &fleet{observers: newObservers(t, server, soak.Cases(30, 200)), direct: map[selection]*stream{}, before: before}
	for _, o := range f.observers {
		if f.direct[o.view] == nil {
			f.direct[o.view] = o.view.watchDirectly(ctx, t, uint64(from))
			f.before[o.view.resource.Resource]++
		}
	}
	direct := kube.AdminConfig()
	all := newWriters(t, soak.Seed(t), restartResources, []string{restartNamespace}, direct, direct, direct, direct)
	all.limit = flowcontrol.NewTokenBucketRateLimiter(100, 10)
	must(t, all.write(ctx, 100))
	running, stop := context.WithCancel(ctx)
	for _, o := range f.observers {
		f.writing.Go(func() { o.informer.RunWithContext(running) })
	}
	writing, stopWriting := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = all.write(writing, math.MaxInt32)
	}()
	f.stop = func() {
		stopWriting()
		<-written
	}
	t.Cleanup(func() {
		f.stop()
		stop()
		f.writing.Wait()
	})
	for _, o := range f.observers {
		eventually(ctx, t, waitTimeout, func() error {
			if !o.informer.HasSynced() {
				return fmt.Errorf("%s has not synced", o.name)
			}
			return nil
		})
	}
	return f
}

// finish stops the writes and checks what the observers have received since their start.
func (f *fleet) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	f.stop()
	to, err := kube.Revision(ctx)
	must(t, err)
	client, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)
	want := map[selection]versions{}
	for v := range f.direct {
		want[v], err = v.versions(ctx, client)
		must(t, err)
	}
	var events, relists int64
	for _, o := range f.observers {
		eventually(ctx, t, waitTimeout, func() error { return o.holds(want[o.view]) })
		events += int64(o.check(t, f.direct[o.view].seen().Events, uint64(to)))
		relists += o.relists()
	}
	t.Logf("%d informers received %d events and listed again %d times", len(f.observers), events, relists)
}

// watchesBefore returns how many watches kube-apiserver serves of each resource.
func watchesBefore(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	before := map[string]float64{}
	m, err := kube.Metrics(ctx)
	must(t, err)
	for _, r := range restartResources {
		before[r.Resource] = watchesOf(m, r.Resource)
	}
	return before
}

// back returns nil when all observers are connected to gateways, and kube-apiserver serves no more
// watches of these than one for each resource and encoding.
func (f *fleet) back(ctx context.Context, gateways ...*realkube.Gateway) error {
	var open float64
	for _, g := range gateways {
		m, err := g.Metrics(ctx)
		if err != nil {
			return err
		}
		open += m.Sum("kubeweir_watches_open", nil)
		if n := m.Sum("kubeweir_forwarded_reads_total", map[string]string{"reason": "history"}); n > 0 {
			return fmt.Errorf("%g watches were forwarded", n)
		}
	}
	if open != float64(len(f.observers)) {
		return fmt.Errorf("%g of %d informers are connected", open, len(f.observers))
	}
	m, err := kube.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, r := range restartResources {
		if now := watchesOf(m, r.Resource); now > f.before[r.Resource]+encodings(r)*float64(len(gateways)) {
			return fmt.Errorf("kube-apiserver serves %v watches of %s, before: %v", now, r.Resource, f.before[r.Resource])
		}
	}
	return nil
}

// TestRestarts restarts a gateway without a state directory in front of many informers, with SIGTERM
// and SIGKILL in turn. No informer may list again, miss an event or receive one twice, and
// kube-apiserver may not get more watches than before.
func TestRestarts(t *testing.T) {
	if *restartDirect {
		measureDirectRestarts(t)
		return
	}
	ctx := deadline(t, 20*time.Minute)
	createNamespaces(ctx, t, restartNamespace)
	before := watchesBefore(ctx, t)
	upstream := startRelay(t, strings.TrimPrefix(kube.URL(), "https://"))
	g := bed.StartGateway(t, realkube.GatewayOptions{
		Path: *restartProgram, Upstream: upstream.url(), ExtraArgs: []string{"--shutdown-drain=2s", "--max-resumed-watches=1000"},
	})
	clients := g.AdminConfig()
	clients.Host = startRelay(t, strings.TrimPrefix(g.URL(), "https://")).url()
	f := startFleet(ctx, t, clients, before)
	restarts := soak.Cases(2, 20)
	if *restartCost > 0 {
		restarts = 2
	}
	for i := range restarts {
		logCost(ctx, t, "before the restart", upstream, kube)
		measure := startCost(t, upstream, kube)
		d := []disturbance{stopGateway(), killGateway()}[i%2]
		must(t, d.do(ctx, g))
		ready := time.Now()
		if *restartProgram == "" { // others may forward the watches
			eventually(ctx, t, waitTimeout, func() error { return f.back(ctx, g) })
			t.Logf("%s: all watches are back %s after readiness", d.name, time.Since(ready).Round(10*time.Millisecond))
		}
		measure(ctx, d.name)
	}
	f.finish(ctx, t)
}

// TestMovedBetweenGateways moves every connection of many informers between two gateways, over and
// over. The clients must not notice either.
func TestMovedBetweenGateways(t *testing.T) {
	ctx := deadline(t, 10*time.Minute)
	createNamespaces(ctx, t, restartNamespace)
	before := watchesBefore(ctx, t)
	gateways := []*realkube.Gateway{startGateway(t), startGateway(t)}
	period := time.Duration(soak.Cases(3, 10)) * time.Second
	clients := gateways[0].AdminConfig()
	clients.Host = startMovingRelay(t, period, strings.TrimPrefix(gateways[0].URL(), "https://"), strings.TrimPrefix(gateways[1].URL(), "https://")).url()
	f := startFleet(ctx, t, clients, before)
	testbed.Wait(ctx, time.Duration(soak.Cases(3, 20))*period)
	eventually(ctx, t, waitTimeout, func() error { return f.back(ctx, gateways...) })
	f.finish(ctx, t)
}

// measureDirectRestarts is TestRestarts for informers of a second kube-apiserver, which restarts. It
// logs what the informers do.
func measureDirectRestarts(t *testing.T) {
	ctx := deadline(t, 20*time.Minute)
	createNamespaces(ctx, t, restartNamespace)
	peer, err := kube.StartPeer(ctx)
	must(t, err)
	defer func() { _ = peer.Close() }()
	clients := peer.AdminConfig()
	way := startRelay(t, strings.TrimPrefix(peer.URL(), "https://"))
	clients.Host = way.url()
	f := startFleet(ctx, t, clients, map[string]float64{})
	for _, kill := range []bool{false, true} {
		logCost(ctx, t, "before the restart", way, kube, peer)
		name := "kube-apiserver is stopped and started"
		if kill {
			name = "kube-apiserver is killed and started"
			must(t, peer.KillAPIServer())
		} else {
			must(t, peer.StopAPIServer(ctx))
		}
		measure := startCost(t, way, kube) // the new process counts from zero
		must(t, peer.StartAPIServer(ctx))
		measure(ctx, name, peer)
		var relists int64
		for _, o := range f.observers {
			relists += o.relists()
		}
		t.Logf("the informers have listed again %d times", relists)
	}
}

// startCost starts to measure. The returned function ends it after -restart.cost, and logs what the
// API servers have used and what has passed the relay. More servers count from their start.
func startCost(t *testing.T, way *relay, servers ...*realkube.Cluster) func(ctx context.Context, name string, more ...*realkube.Cluster) {
	t.Helper()
	if *restartCost == 0 {
		return func(context.Context, string, ...*realkube.Cluster) {}
	}
	began, bytes, used := time.Now(), way.bytes.Load(), processorTime(t, servers)
	return func(ctx context.Context, name string, more ...*realkube.Cluster) {
		testbed.Wait(ctx, *restartCost-time.Since(began))
		t.Logf("%s: in %s, kube-apiserver used %s of the processor and exchanged %.1f MB with its clients", name, time.Since(began).Round(time.Second),
			(processorTime(t, append(more, servers...)) - used).Round(10*time.Millisecond), float64(way.bytes.Load()-bytes)/1e6)
	}
}

func logCost(ctx context.Context, t *testing.T, name string, way *relay, servers ...*realkube.Cluster) {
	t.Helper()
	startCost(t, way, servers...)(ctx, name)
}

func processorTime(t *testing.T, servers []*realkube.Cluster) (sum time.Duration) {
	t.Helper()
	for _, s := range servers {
		used, err := realkube.CPUTime(s.APIServerPID())
		must(t, err)
		sum += used
	}
	return sum
}
