package watchmux

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// labelled returns an object with n labels in order.
func labelled(rv uint64, n int) *object.Object {
	o := &object.Object{Key: "n/a", Namespace: "n", Name: "a", RV: rv}
	for i := range n {
		o.Labels = append(o.Labels, object.Label{Key: fmt.Sprintf("k%07d", i), Value: "x"})
	}
	return o
}

// costly returns a selector with the maximum number of terms, none of them an equality.
func costly(tb testing.TB, suffix string) *object.Filter {
	terms := make([]string, object.MaxTerms)
	for i := range terms {
		terms[i] = fmt.Sprintf("!k%07d%s", i, suffix)
	}
	s, err := labels.Parse(strings.Join(terms, ","))
	if err != nil {
		tb.Fatal(err)
	}
	f, err := object.NewFilter(object.CustomSchema(nil), "", "", s, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestCostlyFiltersAreEvaluatedByTheirReaders checks that filters with many terms, and filters of
// objects with many labels, are not evaluated under the lock: the watcher is woken and evaluates
// it, even if there is nothing for it.
func TestCostlyFiltersAreEvaluatedByTheirReaders(t *testing.T) {
	m := New(Options{})
	notified := map[string]int{}
	watch := func(name string, f *object.Filter) *Watcher {
		w, err := m.Watch(0, f, func() { notified[name]++ })
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	few := func(sel string) *object.Filter { return testFilter(t, "", "", sel, "") }
	watchers := map[string]*Watcher{
		"costly": watch("costly", costly(t, "")), "costly, matches": watch("costly, matches", costly(t, "x")),
		"few": watch("few", few("!k0000000")), "few, matches": watch("few, matches", few("!other")),
		"equality": watch("equality", few("k0000005=x")), "other equality": watch("other equality", few("other=x")),
	}
	step := func(labels int, woken, got string) {
		t.Helper()
		for _, w := range watchers {
			if ds, _, err := w.Next(nil, 10); len(ds) > 0 || err != nil {
				t.Fatalf("before: %v, %v", ds, err)
			}
		}
		clear(notified)
		m.Append(&Event{Type: api.Added, RV: m.RV() + 1, Object: labelled(m.RV()+1, labels)})
		for name, w := range watchers {
			if want := strings.Contains(woken, name+";"); (notified[name] == 1) != want {
				t.Errorf("%d labels: %s notified %d times", labels, name, notified[name])
			}
			ds, rv, err := w.Next(nil, 10)
			if want := strings.Contains(got, name+";"); (len(ds) == 1) != want || err != nil || rv != m.RV() {
				t.Errorf("%d labels: %s got %d events up to %d, %v", labels, name, len(ds), rv, err)
			}
		}
	}
	step(10, "costly; costly, matches; few, matches; equality;", "costly, matches; few, matches; equality;")
	step(5000, "costly; costly, matches; few; few, matches; equality;", "costly, matches; few, matches; equality;")
}

// BenchmarkAppendToCostlyWatchers measures the cost of an event for the writer, and for everyone
// who waits for the lock, with the worst filters that clients can choose.
func BenchmarkAppendToCostlyWatchers(b *testing.B) {
	const watchers = 100
	m := New(Options{MaxEvents: 128})
	var woken, all []*Watcher
	f := costly(b, "")
	for range watchers {
		var w *Watcher
		w, err := m.Watch(0, f, func() { woken = append(woken, w) })
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, w)
	}
	read := func(ws []*Watcher) {
		for _, w := range ws {
			if _, _, err := w.Next(nil, 16); err != nil {
				b.Fatal(err)
			}
		}
	}
	read(all)
	objects := [2]*object.Object{labelled(0, 20000), labelled(0, 20000)}
	rv := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		rv++
		m.Append(&Event{Type: api.Modified, RV: rv, Object: objects[rv%2], Prev: objects[(rv+1)%2]})
		b.StopTimer()
		read(woken)
		woken = woken[:0]
		b.StartTimer()
	}
}
