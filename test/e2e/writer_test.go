package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	finalizer = "e2e.example.com/hold"
	// writeTimeout bounds one write, because a paused server does not respond.
	writeTimeout = 10 * time.Second
	// slotsPerWriter is how many objects of each resource and namespace a writer has.
	slotsPerWriter = 6
)

// writers are goroutines that change random objects. Each writer has its own object names, so
// writers never conflict, and each knows the state of its objects.
type writers struct {
	all  []*writer
	done atomic.Int64 // acknowledged writes

	// gentle makes every writer touch an object at most once from then on, and delete none. The state
	// then contains the whole history, also for clients that missed a part of it.
	gentle atomic.Bool

	limit flowcontrol.RateLimiter // of writes, or nil
}

// newWriters returns a writer for each configuration. The seed determines the writes of each
// writer, but not how the writers interleave.
func newWriters(t *testing.T, seed uint64, resources []schema.GroupVersionResource, namespaces []string, cfgs ...*rest.Config) *writers {
	t.Helper()
	ws := &writers{}
	for i, cfg := range cfgs {
		cfg = rest.CopyConfig(cfg)
		cfg.UserAgent = fmt.Sprintf("writer-%d", i)
		client, err := dynamic.NewForConfig(cfg)
		must(t, err)
		w := &writer{owner: ws, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		for _, resource := range resources {
			for _, ns := range namespaces {
				for n := range slotsPerWriter {
					w.slots = append(w.slots, &slot{
						resource: resource, namespace: ns, name: fmt.Sprintf("w%d-%d", i, n),
						client: client.Resource(resource).Namespace(ns),
					})
				}
			}
		}
		ws.all = append(ws.all, w)
	}
	return ws
}

// write makes n more writes in total and returns once they are acknowledged.
func (ws *writers) write(ctx context.Context, n int64) error {
	goal := ws.done.Load() + n
	var running sync.WaitGroup
	for _, w := range ws.all {
		running.Go(func() {
			for ctx.Err() == nil && ws.done.Load() < goal && ws.paced(ctx) && w.step(ctx) {
			}
		})
	}
	running.Wait()
	if done := ws.done.Load(); done < goal {
		return fmt.Errorf("%d writes are missing: %w", goal-done, context.Cause(ctx))
	}
	return nil
}

// paced waits for the rate limit. It returns false if ctx has ended.
func (ws *writers) paced(ctx context.Context) bool {
	return ws.limit == nil || ws.limit.Wait(ctx) == nil
}

// setGentle switches the gentle mode on or off. No writer may be running.
func (ws *writers) setGentle(on bool) {
	ws.gentle.Store(on)
	for _, w := range ws.all {
		w.fresh = 0
		for _, s := range w.slots {
			s.touched = false
		}
	}
}

// A writer must be used by one goroutine at a time.
type writer struct {
	owner  *writers
	random *rand.Rand
	slots  []*slot
	fresh  int // number of objects created in gentle mode, for their names
	rounds int
}

// A slot is the name of an object that may or may not exist.
type slot struct {
	resource        schema.GroupVersionResource
	namespace, name string
	client          dynamic.ResourceInterface
	object          *unstructured.Unstructured // as of the last write; nil if it does not exist
	unknown         bool                       // the outcome of the last write is unknown
	touched         bool
}

// step makes one write. It returns false if the writer has nothing left to do.
func (w *writer) step(ctx context.Context) bool {
	s := w.slots[w.random.IntN(len(w.slots))]
	gentle := w.owner.gentle.Load()
	if gentle {
		if s.touched || s.unknown || s.object != nil && s.object.GetDeletionTimestamp() != nil {
			s = w.freshSlot(s)
		}
		s.touched = true
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := w.change(ctx, s, gentle); err != nil {
		s.unknown = true
		// A server that is down fails at once, so avoid a busy loop.
		timer := time.NewTimer(testbed.PollPeriod)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return true
	}
	w.owner.done.Add(1)
	return true
}

// freshSlot returns a slot with a new name for the same kind of object.
func (w *writer) freshSlot(like *slot) *slot {
	w.fresh++
	w.rounds++
	s := &slot{resource: like.resource, namespace: like.namespace, client: like.client}
	prefix, _, _ := strings.Cut(like.name, "-")
	s.name = fmt.Sprintf("%s-fresh-%d", prefix, w.rounds)
	w.slots = append(w.slots, s)
	return s
}

func (w *writer) change(ctx context.Context, s *slot, gentle bool) error {
	if s.unknown {
		if err := s.resync(ctx); err != nil {
			return err
		}
	}
	if s.object == nil {
		return w.create(ctx, s, gentle)
	}
	if s.object.GetDeletionTimestamp() != nil {
		return s.release(ctx)
	}
	switch n := w.random.IntN(100); {
	case n < 30:
		return w.update(ctx, s)
	case n < 55:
		return w.label(ctx, s)
	case n < 75 && (s.resource == podsResource || s.resource == widgetsResource):
		return w.status(ctx, s)
	case n < 75 || gentle:
		return w.update(ctx, s)
	case n < 76:
		return w.deleteSome(ctx, s)
	default:
		return s.delete(ctx)
	}
}

// resync reads the object after a write with unknown outcome.
func (s *slot) resync(ctx context.Context) error {
	obj, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil && !errors.IsNotFound(err) {
		return err
	}
	s.object, s.unknown = nil, false
	if err == nil {
		s.object = obj
	}
	return nil
}

func (s *slot) keep(obj *unstructured.Unstructured, err error) error {
	if err == nil {
		s.object = obj
	}
	return err
}

func (w *writer) create(ctx context.Context, s *slot, gentle bool) error {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetName(s.name)
	obj.SetNamespace(s.namespace)
	obj.SetLabels(w.labels())
	if !gentle && w.random.IntN(10) == 0 {
		obj.SetFinalizers([]string{finalizer})
	}
	switch s.resource {
	case podsResource:
		obj.SetAPIVersion("v1")
		obj.SetKind("Pod")
		spec := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/image"}}}
		if n := w.random.IntN(3); n > 0 {
			spec["nodeName"] = fmt.Sprintf("node-%d", n)
		}
		obj.Object["spec"] = spec
	case configMapsResource:
		obj.SetAPIVersion("v1")
		obj.SetKind("ConfigMap")
		obj.Object["data"] = w.content()
	case secretsResource:
		obj.SetAPIVersion("v1")
		obj.SetKind("Secret")
		obj.Object["stringData"] = w.content()
	case accountsResource:
		obj.SetAPIVersion("v1")
		obj.SetKind("ServiceAccount")
	default:
		obj.SetAPIVersion("example.com/v1")
		obj.SetKind("Widget")
		obj.Object["spec"] = w.content()
	}
	return s.keep(s.client.Create(ctx, obj, metav1.CreateOptions{}))
}

// update replaces the whole object, at the version that the writer has.
func (w *writer) update(ctx context.Context, s *slot) error {
	obj := s.object.DeepCopy()
	switch s.resource {
	case podsResource, accountsResource:
		obj.SetAnnotations(map[string]string{"note": w.note()})
	case configMapsResource:
		obj.Object["data"] = w.content()
	case secretsResource:
		obj.Object["stringData"] = w.content()
	default:
		obj.Object["spec"] = w.content()
	}
	return s.keep(s.client.Update(ctx, obj, metav1.UpdateOptions{}))
}

func (w *writer) label(ctx context.Context, s *slot) error {
	return s.patch(ctx, map[string]any{"metadata": map[string]any{"labels": w.labels()}})
}

func (w *writer) status(ctx context.Context, s *slot) error {
	status := map[string]any{"ready": w.note()}
	if s.resource == podsResource {
		status = map[string]any{"phase": pick(w.random, "Pending", "Running", "Succeeded"), "reason": w.note()}
	}
	return s.patch(ctx, map[string]any{"status": status}, "status")
}

func (s *slot) patch(ctx context.Context, content any, subresources ...string) error {
	b, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return s.keep(s.client.Patch(ctx, s.name, types.MergePatchType, b, metav1.PatchOptions{}, subresources...))
}

func (s *slot) delete(ctx context.Context) error {
	// Without a grace period, because there is no kubelet to end the pod.
	if err := s.client.Delete(ctx, s.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		return err
	}
	if len(s.object.GetFinalizers()) > 0 {
		s.unknown = true // it still exists, and is terminating
		return nil
	}
	s.object = nil
	return nil
}

// release removes the finalizers of a terminating object, which deletes it.
func (s *slot) release(ctx context.Context) error {
	if err := removeFinalizers(ctx, s.client, s.name); err != nil {
		return err
	}
	s.object = nil
	return nil
}

func removeFinalizers(ctx context.Context, objects dynamic.ResourceInterface, name string) error {
	_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteSome deletes all of this writer's objects with one label in one namespace.
func (w *writer) deleteSome(ctx context.Context, s *slot) error {
	labels := s.object.GetLabels()
	selector := fmt.Sprintf("writer=%s,color=%s", labels["writer"], labels["color"])
	for _, other := range w.slots {
		other.unknown = other.unknown || other.resource == s.resource && other.namespace == s.namespace
	}
	return s.client.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{LabelSelector: selector})
}

func (w *writer) labels() map[string]string {
	prefix, _, _ := strings.Cut(w.slots[0].name, "-")
	return map[string]string{
		"writer": prefix,
		"color":  pick(w.random, "red", "green", "blue"),
		"change": fmt.Sprint(w.random.Uint32()),
	}
}

// content returns a map that is valid as a ConfigMap's data and a Widget's spec.
func (w *writer) content() map[string]any {
	return map[string]any{"color": pick(w.random, "red", "green", "blue"), "note": w.note()}
}

// note returns a unique text of up to 2 KB.
func (w *writer) note() string {
	return fmt.Sprintf("%x %s", w.random.Uint64(), strings.Repeat("x", w.random.IntN(2048)))
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }
