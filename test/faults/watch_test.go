package faults

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// An openWatch is a watch through the gateway that stays open during a fault.
type openWatch struct {
	name  string
	watch watch.Interface
	done  chan struct{} // closed when it has ended

	mu   sync.Mutex
	seen watchtest.Watch
	err  error // that ended the watch
}

// openWatch opens a watch of the scene's ConfigMaps from a version.
func (s *scene) openWatch(ctx context.Context, t *testing.T, name, contentType string, from uint64) *openWatch {
	t.Helper()
	cfg := s.gateway.AdminConfig()
	cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
	typed, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	w, err := typed.CoreV1().ConfigMaps(s.name).Watch(ctx, metav1.ListOptions{
		ResourceVersion: strconv.FormatUint(from, 10), AllowWatchBookmarks: true,
	})
	must(t, err)
	o := &openWatch{name: name, watch: w, done: make(chan struct{}), seen: watchtest.Watch{From: from}}
	go o.read()
	t.Cleanup(func() {
		w.Stop()
		<-o.done
	})
	return o
}

func (o *openWatch) read() {
	defer close(o.done)
	for e := range o.watch.ResultChan() {
		err := o.take(e)
		if err != nil {
			o.mu.Lock()
			o.err = err
			o.mu.Unlock()
			return
		}
	}
}

func (o *openWatch) take(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return err
	}
	wire := watchtest.WireEvent{Type: api.ParseEventType(string(e.Type))}
	if wire.Type != api.Bookmark {
		wire.Key = m.GetNamespace() + "/" + m.GetName()
	}
	if wire.RV, err = strconv.ParseUint(m.GetResourceVersion(), 10, 64); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen.Events = append(o.seen.Events, wire)
	return nil
}

// last returns the version up to which the watch has received everything.
func (o *openWatch) last() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.Last()
}

// ended returns why the watch has ended, or nil while it is open.
func (o *openWatch) ended() error {
	select {
	case <-o.done:
	default:
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return fmt.Errorf("the watch ended: %w", o.err)
	}
	return fmt.Errorf("the watch ended after version %d", o.seen.Last())
}

// check compares the received events with the truth.
func (o *openWatch) check(truth watchtest.Truth) error {
	if err := o.ended(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return watchtest.Check(o.seen, truth)
}

// merged removes modifications between two versions from the truth if the watch received a later
// event of the same object instead. A reflector that lists again sees only the last state of an
// object.
func (o *openWatch) merged(truth watchtest.Truth, from, to uint64) watchtest.Truth {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, latest := make(map[uint64]bool), make(map[string]uint64)
	for _, e := range o.seen.Events {
		seen[e.RV], latest[e.Key] = true, e.RV
	}
	truth.Events = slices.DeleteFunc(slices.Clone(truth.Events), func(e watchtest.WireEvent) bool {
		return e.Type == api.Modified && !seen[e.RV] && e.RV < latest[e.Key] && from <= e.RV && e.RV <= to
	})
	return truth
}
