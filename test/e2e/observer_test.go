package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// A selection is what an observer observes: the objects of a resource, perhaps with a selector.
type selection struct {
	resource       schema.GroupVersionResource
	labels, fields string
}

func (v selection) String() string { return v.resource.Resource + " " + v.labels + v.fields }

func (v selection) options(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = v.labels, v.fields
	return o
}

// versions reads the most recent state of the selection from kube-apiserver itself.
func (v selection) versions(ctx context.Context, client metadata.Interface) (versions, error) {
	list, err := client.Resource(v.resource).List(ctx, v.options(metav1.ListOptions{}))
	if err != nil {
		return nil, err
	}
	out := versions{}
	for i := range list.Items {
		out[objectKey(list.Items[i].Namespace, list.Items[i].Name)] = list.Items[i].ResourceVersion
	}
	return out, nil
}

// watchDirectly watches the selection at kube-apiserver itself.
func (v selection) watchDirectly(ctx context.Context, t *testing.T, from uint64) *stream {
	t.Helper()
	path := "/api/v1/"
	if v.resource.Group != "" {
		path = "/apis/" + v.resource.Group + "/" + v.resource.Version + "/"
	}
	query := url.Values{"watch": {"true"}, "resourceVersion": {fmt.Sprint(from)}, "labelSelector": {v.labels}, "fieldSelector": {v.fields}}
	r := request{path: path + v.resource.Resource + "?" + query.Encode(), accept: typeJSON}
	return direct(t, as(realkube.Admin)).mustWatch(ctx, t, r, from, false)
}

// An observer is an informer on a connection of its own that records the events it receives.
type observer struct {
	view     selection
	name     string
	informer cache.SharedIndexInformer
	calls    callCounter
	// brief counts the watches without events that ended within a second, from the end of the initial events
	// on if there are any. client-go lists again after them (VeryShortWatchError).
	brief atomic.Int64

	mu struct {
		sync.Mutex
		from   uint64      // version of the first list
		last   uint64      // version of the last list, event or bookmark
		listed [][2]uint64 // from which version to which a later list has replaced the events
		events []watchtest.WireEvent
		errors []string // ERROR events
	}
}

// newObservers returns n observers of five resources: typed clients with JSON and protobuf, and
// dynamic ones, over HTTP/2 and HTTP/1.1, a third of them with selectors.
func newObservers(t *testing.T, base *rest.Config, n int) []*observer {
	t.Helper()
	var out []*observer
	for i := range n {
		o := &observer{view: selection{resource: restartResources[i%len(restartResources)]}}
		switch i / 10 % 6 {
		case 0:
			o.view.labels = "color=red"
		case 1:
			o.view.fields = "metadata.name=w1-1"
			if o.view.resource == podsResource {
				o.view.fields = "spec.nodeName=node-1"
			}
		}
		cfg := rest.CopyConfig(base)
		if i%7 == 0 {
			cfg = http1(base)
		}
		cfg.Dial = (&net.Dialer{}).DialContext // so that the transport is not shared
		cfg.Wrap(o.calls.wrap)
		kind := kinds[i/5%2]
		if o.view.resource == widgetsResource {
			kind = kinds[2]
		}
		r, err := kind.make(cfg, o.view.resource)
		must(t, err)
		o.name = fmt.Sprintf("informer %d, %s of %s", i, kind.name, o.view)
		o.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) { return o.list(ctx, r, lo) },
			WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) { return o.watch(ctx, r, lo) },
		}, r.of, 0, cache.Indexers{})
		out = append(out, o)
	}
	return out
}

func (o *observer) list(ctx context.Context, r reader, lo metav1.ListOptions) (runtime.Object, error) {
	list, err := r.list(ctx, o.view.options(lo))
	if err == nil {
		o.begin(list)
	}
	return list, err
}

func (o *observer) watch(ctx context.Context, r reader, lo metav1.ListOptions) (watch.Interface, error) {
	w, err := r.watch(ctx, o.view.options(lo))
	if err != nil {
		return nil, err
	}
	out := &observedWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go o.pass(ctx, out, lo.SendInitialEvents != nil && *lo.SendInitialEvents)
	return out, nil
}

// observedWatch is a watch whose events pass an observer.
type observedWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (w *observedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *observedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

// pass records the events of a watch and passes them on.
func (o *observer) pass(ctx context.Context, w *observedWatch, initial bool) {
	defer close(w.events)
	began, n := time.Now(), 0
	for e := range w.Interface.ResultChan() {
		n++
		switch {
		case e.Type == watch.Error:
			o.mu.Lock()
			o.mu.errors = append(o.mu.errors, fmt.Sprint(e.Object))
			o.mu.Unlock()
		case e.Type == watch.Bookmark && initial:
			initial = false
			o.begin(e.Object)
			began, n = time.Now(), 0
		case e.Type == watch.Bookmark:
			o.advance(e.Object)
		case e.Type != watch.Bookmark && !initial:
			o.note(e)
		}
		select {
		case w.events <- e:
		case <-w.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
	if n == 0 && time.Since(began) < time.Second {
		o.brief.Add(1)
	}
}

// begin records the version of a list.
func (o *observer) begin(list runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.mu.last
	rv := o.versionLocked(list)
	if o.mu.from == 0 {
		o.mu.from = rv
	} else {
		o.mu.listed = append(o.mu.listed, [2]uint64{before, rv})
	}
}

// advance records the version of a bookmark.
func (o *observer) advance(bookmark runtime.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versionLocked(bookmark)
}

// versionLocked returns and records the version of a list, bookmark or object.
func (o *observer) versionLocked(obj runtime.Object) (rv uint64) {
	m, err := meta.CommonAccessor(obj)
	if err == nil {
		rv, err = api.ParseResourceVersion(m.GetResourceVersion())
	}
	if err != nil {
		o.mu.errors = append(o.mu.errors, err.Error())
	}
	o.mu.last = max(o.mu.last, rv)
	return rv
}

func (o *observer) note(e watch.Event) {
	m, err := meta.Accessor(e.Object)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.mu.errors = append(o.mu.errors, err.Error())
		return
	}
	rv := o.versionLocked(e.Object)
	o.mu.events = append(o.mu.events, watchtest.WireEvent{Type: api.ParseEventType(string(e.Type)), Key: objectKey(m.GetNamespace(), m.GetName()), RV: rv})
}

// relists returns how often the informer has listed after its first list.
func (o *observer) relists() int64 { return o.calls.lists.Load() + o.calls.watchLists.Load() - 1 }

// holds compares the informer's store with a state.
func (o *observer) holds(want versions) error {
	held := versions{}
	for _, obj := range o.informer.GetStore().List() {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		held[objectKey(m.GetNamespace(), m.GetName())] = m.GetResourceVersion()
	}
	if difference := held.firstDifference(want); difference != "" {
		return fmt.Errorf("%s: %s (last at version %s)", o.name, difference, o.informer.LastSyncResourceVersion())
	}
	return nil
}

// check reports what the informer missed or received twice: it must have received the events of
// kube-apiserver's watch after its first list, except those that a later list has replaced. It reports lists that
// could be avoided. It returns how many events these are.
func (o *observer) check(t *testing.T, events []watchtest.WireEvent, to uint64) int {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	within := func(all []watchtest.WireEvent) []watchtest.WireEvent {
		return slices.DeleteFunc(slices.Clone(all), func(e watchtest.WireEvent) bool {
			replaced := slices.ContainsFunc(o.mu.listed, func(l [2]uint64) bool { return e.RV > l[0] && e.RV <= l[1] })
			return e.RV <= o.mu.from || e.RV > to || replaced
		})
	}
	got, want := within(o.mu.events), within(events)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: from event %d on it received %v, want %v", o.name, i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
			break
		}
	}
	if len(o.mu.errors) > 0 {
		t.Errorf("%s: %v", o.name, o.mu.errors)
	}
	failed := o.calls.failed()
	unavoidable := o.brief.Load()
	for failure, n := range failed {
		if failure[0] >= '0' && failure[0] <= '9' {
			t.Errorf("%s: %d responses %s", o.name, n, failure)
		}
		unavoidable += int64(n) // client-go lists again if a connection is cut before the response
	}
	if n := o.relists(); n > unavoidable {
		t.Errorf("%s: %d relists; %d brief watches, failed requests: %v", o.name, n, o.brief.Load(), failed)
	}
	return len(want)
}
