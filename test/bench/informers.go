package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/kubeweir/kubeweir/test/realkube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// informers measures a row of kind Informers: many client-go informers that start at the same
// moment, each with a connection of its own, because they stand for separate programs. The gateway
// has just started with an empty cache, and its requests to kube-apiserver count.
func (m *measurer) informers(ctx context.Context, r *Row) (*measured, error) {
	if err := m.bed.common(ctx, m.against); err != nil {
		return nil, err
	}
	out := &measured{}
	n := min(r.Clients, m.effort.informers)
	m.current = nil
	if m.profile == "" {
		t, err := m.syncing(ctx, r, m.bed.apiserver, m.bed.cluster.AdminConfig(), n)
		if err != nil {
			return nil, fmt.Errorf("kube-apiserver: %w", err)
		}
		out.apiserver = t
	}
	g, err := m.bed.startGateway(ctx, m.bed.binary)
	if err != nil {
		return nil, err
	}
	defer g.process.Close()
	m.current = &contest{kubeweir: g, rival: m.bed.apiserver}
	err = m.profiled(ctx, r, func() error {
		out.kubeweir, err = m.syncing(ctx, r, m.counted(g.server, r), g.process.AdminConfig(), n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kubeweir: %w", err)
	}
	for _, s := range []struct {
		name string
		t    *tally
	}{{"kube-apiserver", &out.apiserver}, {"kubeweir", &out.kubeweir}} {
		if s.t.count > 0 {
			out.notes = append(out.notes, fmt.Sprintf("%d informers of %s had synced after %s, of which the servers used the processor for %s; decoding on the same machine is most of the rest",
				s.t.count, s.name, s.t.wall.Round(time.Millisecond), (s.t.cpu-s.t.deducted).Round(10*time.Millisecond)))
		}
	}
	out.noteOwn(r)
	return out, nil
}

// syncing starts n informers and returns when all have synced.
func (m *measurer) syncing(ctx context.Context, r *Row, s *server, cfg *rest.Config, n int) (tally, error) {
	var t tally
	defer debug.FreeOSMemory() // the informers use much memory
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	all := make([]*informer, n)
	for i := range all {
		var err error
		if all[i], err = newInformer(cfg, m.effort.pods); err != nil {
			return t, err
		}
	}
	if err := m.quiet(ctx, s.pids...); err != nil {
		return t, err
	}
	before, err := realkube.CPUTime(s.pids...)
	if err != nil {
		return t, err
	}
	own, err := realkube.CPUTime(s.pid)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	// Informers' own log messages are not needed: the latencies show how long they wait.
	running, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	for _, one := range all {
		one.factory.StartWithContext(running)
	}
	defer func() {
		stop()
		for _, one := range all {
			one.factory.Shutdown()
		}
	}()
	for _, one := range all {
		select {
		case <-one.synced:
			t.latencies = append(t.latencies, one.at.Sub(begin))
		case <-ctx.Done():
			return t, fmt.Errorf("%d of %d informers have synced: %w", len(t.latencies), n, ctx.Err())
		}
	}
	t.wall, t.count = time.Since(begin), int64(n)
	after, err := realkube.CPUTime(s.pids...)
	ownAfter, err2 := realkube.CPUTime(s.pid)
	t.cpu, t.own = after-before, ownAfter-own
	return t, errors.Join(err, err2, m.deductBackground(ctx, r, s, &t))
}

// An informer is an informer of pods.
type informer struct {
	factory informers.SharedInformerFactory
	synced  chan struct{} // closed when it holds all pods
	at      time.Time     // when it synced
}

// newInformer returns an informer that keeps only the name and version of each pod: hundreds of
// full caches do not fit into one machine's memory.
func newInformer(cfg *rest.Config, pods int) (*informer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = protobufType, protobufType
	cfg.QPS = -1
	cfg.Dial = (&net.Dialer{}).DialContext // each informer has a connection of its own
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	out := &informer{synced: make(chan struct{})}
	out.factory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(o any) (any, error) {
		if p, ok := o.(*corev1.Pod); ok {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.ResourceVersion}}, nil
		}
		return o, nil
	}))
	seen := 0
	_, err = out.factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if seen++; seen == pods {
			out.at = time.Now()
			close(out.synced)
		}
	}})
	return out, err
}
