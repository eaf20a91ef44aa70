package watchmux_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// hall is a mux whose watchers read as soon as they are woken. Its events concern existing objects
// and are created in advance.
type hall struct {
	mux     *watchmux.Mux
	readers []*benchReader
	woken   []*benchReader
	objects []*object.Object
	buffer  []watchmux.Delivery
	n       int
}

type benchReader struct{ w *watchmux.Watcher }

// newHall creates watchers with filters in turn, and objects with the labels l=0, 1, 2 ...
func newHall(t testing.TB, watchers, objects int, filterOf func(i int) *object.Filter) *hall {
	const ring = 128
	h := &hall{mux: start(t, watchmux.Options{MaxEvents: ring}, 0), buffer: make([]watchmux.Delivery, 0, 16)}
	s := schema()
	for i := range objects {
		h.objects = append(h.objects, build(t, s, state{key: fmt.Sprintf("ns/obj%d", i), label: fmt.Sprint(i), node: "n"}, 1))
	}
	for i := range watchers {
		r := &benchReader{}
		w, err := h.mux.Watch(0, filterOf(i), func() { h.woken = append(h.woken, r) })
		if err != nil {
			t.Fatal(err)
		}
		r.w = w
		h.readers = append(h.readers, r)
		h.woken = append(h.woken, r)
	}
	h.read(t)
	for range 2 * ring { // until it has its full size
		h.mux.Append(h.event())
		h.read(t)
	}
	return h
}

func (h *hall) event() *watchmux.Event {
	h.n++
	o := h.objects[h.n%len(h.objects)]
	return &watchmux.Event{Type: api.Modified, RV: uint64(h.n), Object: o, Prev: o}
}

// read lets all woken watchers read and returns the number of deliveries.
func (h *hall) read(t testing.TB) (deliveries int) {
	for _, r := range h.woken {
		var err error
		if h.buffer, _, err = r.w.Next(h.buffer[:0], 16); err != nil {
			t.Fatal(err)
		}
		deliveries += len(h.buffer)
	}
	h.woken = h.woken[:0]
	return deliveries
}

func everything(int) *object.Filter { return nil }

func ownLabel(t testing.TB) func(int) *object.Filter {
	s := schema()
	return func(i int) *object.Filter {
		f, err := object.NewFilter(s, "", "", labels.SelectorFromSet(labels.Set{"l": fmt.Sprint(i)}), nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// TestDispatchAllocations checks that an event costs no allocation per watcher, neither when it is
// appended nor when it is read.
func TestDispatchAllocations(t *testing.T) {
	for name, filterOf := range map[string]func(int) *object.Filter{"everything": everything, "own label": ownLabel(t)} {
		h := newHall(t, 1000, 1000, filterOf)
		e := make([]*watchmux.Event, 0, 300)
		for range cap(e) {
			e = append(e, h.event())
		}
		next, deliveries := 0, 0
		one := make([]*watchmux.Event, 1)
		n := testing.AllocsPerRun(200, func() {
			one[0] = e[next]
			next++
			h.mux.Append(one...)
			deliveries += h.read(t)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
		if want := map[string]int{"everything": 201 * 1000, "own label": 201}[name]; deliveries != want {
			t.Errorf("%s: %d deliveries, want %d", name, deliveries, want)
		}
	}
	h := newHall(t, 1, 1, everything)
	h.mux.Append(h.event())
	ds, _, err := h.readers[0].w.Next(nil, 16)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(watchmux.Delivery) ([]byte, error) { return nil, nil }
	_, _ = ds[0].Frame(jsonRep, 0, encode)
	if n := testing.AllocsPerRun(100, func() { _, _ = ds[0].Frame(jsonRep, 0, encode) }); n != 0 {
		t.Errorf("%v allocations for a cached frame", n)
	}
}

// BenchmarkAppend appends without watchers.
func BenchmarkAppend(b *testing.B) {
	h := newHall(b, 0, 1000, everything)
	b.ReportAllocs()
	for b.Loop() {
		h.mux.Append(h.event())
	}
}

// BenchmarkDispatch appends one event and lets all watchers read it.
func BenchmarkDispatch(b *testing.B) {
	for _, kind := range []string{"everything", "own label"} {
		for _, watchers := range []int{10, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d", kind, watchers), func(b *testing.B) {
				filterOf := everything
				if kind == "own label" {
					filterOf = ownLabel(b)
				}
				h := newHall(b, watchers, watchers, filterOf)
				deliveries := 0
				b.ReportAllocs()
				for b.Loop() {
					h.mux.Append(h.event())
					deliveries += h.read(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(deliveries), "ns/delivery")
			})
		}
	}
}

// BenchmarkCatchUp reads a full ring with a filter that matches few events.
func BenchmarkCatchUp(b *testing.B) {
	const events = 1024
	h := newHall(b, 0, 1000, everything)
	h.mux = start(b, watchmux.Options{}, 0)
	h.n = 0
	for range events {
		h.mux.Append(h.event())
	}
	f := ownLabel(b)(7)
	oldest := h.mux.Oldest()
	b.ReportAllocs()
	for b.Loop() {
		w, err := h.mux.Watch(oldest, f, func() {})
		if err != nil {
			b.Fatal(err)
		}
		if h.buffer, _, err = w.Next(h.buffer[:0], 16); err != nil {
			b.Fatal(err)
		}
		w.Stop()
	}
}
