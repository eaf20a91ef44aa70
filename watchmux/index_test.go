package watchmux

import (
	"fmt"
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
)

func testFilter(t *testing.T, ns, name, labelSel, fieldSel string) *object.Filter {
	t.Helper()
	l, err := labels.Parse(labelSel)
	if err != nil {
		t.Fatal(err)
	}
	f, err := object.NewFilter(object.CustomSchema([]string{".spec.node", ".spec.phase"}), ns, name, l, fields.ParseSelectorOrDie(fieldSel))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// describe returns where a watcher is registered.
func describe(x *index, w *Watcher) string {
	s := ""
	for _, m := range w.members {
		switch b := m.bucket; {
		case b == &x.rest:
			s += "rest "
			continue
		case b.label != "":
			s += "label " + b.label + ":"
		case b.slot < fieldSlots:
			s += []string{"key:", "name:", "namespace:"}[b.slot]
		default:
			s += "field:"
		}
		s += m.bucket.value + " "
	}
	return s
}

// TestIndexChoice checks that watchers are registered under the least crowded term.
func TestIndexChoice(t *testing.T) {
	m := New(Options{})
	x := &m.mu.index
	place := func(ns, name, labelSel, fieldSel string) string {
		w, err := m.Watch(0, testFilter(t, ns, name, labelSel, fieldSel), func() {})
		if err != nil {
			t.Fatal(err)
		}
		return describe(x, w)
	}
	for _, c := range []struct{ ns, name, labels, fields, want string }{
		{"", "", "", "", "rest "},
		{"", "", "a!=b,!c", "spec.node!=n", "rest "},
		{"n", "", "", "", "namespace:n "},
		{"n", "p", "a=b", "spec.node=n", "key:n/p "},
		{"", "p", "", "", "name:p "},
		{"n", "", "", "metadata.name=p", "key:n/p "},
		{"", "", "", "metadata.name=p,metadata.namespace=n", "name:p "},
		{"", "", "app=web", "", "label app:web "},
		{"", "", "app=web,own=1", "", "label own:1 "},
		{"", "", "own=2,app=web", "", "label own:2 "},
		{"", "", "app in (web,db,job)", "", "label app:db label app:job label app:web "},
		{"other", "", "app=web", "", "namespace:other "},
		{"", "", "app=web", "spec.node=n1", "field:n1 "},
		{"", "", "own=3", "spec.node=n1", "label own:3 "},
	} {
		if got := place(c.ns, c.name, c.labels, c.fields); got != c.want {
			t.Errorf("%+v: stands under %q, want %q", c, got, c.want)
		}
	}
}

// TestIndexForgets checks that values named in selectors leave with their watchers, and that the
// positions of armed watchers stay right in any order of leaving.
func TestIndexForgets(t *testing.T) {
	m := New(Options{})
	x := &m.mu.index
	rng := rand.New(rand.NewSource(1))
	var watchers []*Watcher
	for i := range 400 {
		w, err := m.Watch(0, testFilter(t, []string{"", "n"}[i%2], "", []string{
			"", "a=b", fmt.Sprintf("own-%d=x", i), fmt.Sprintf("own=%d", i), fmt.Sprintf("own in (%d,%d,%d)", i, i+1, i+2),
		}[rng.Intn(5)], []string{"", "spec.node=n", fmt.Sprintf("spec.node=%d", i), "metadata.name=p"}[rng.Intn(4)]), func() {})
		if err != nil {
			t.Fatal(err)
		}
		watchers = append(watchers, w)
	}
	rng.Shuffle(len(watchers), func(i, j int) { watchers[i], watchers[j] = watchers[j], watchers[i] })
	for i, w := range watchers {
		if _, _, err := w.Next(nil, 1); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			watchers[rng.Intn(i+1)].Stop()
		}
		checkIndex(t, m)
	}
	for _, w := range watchers {
		w.Stop()
	}
	checkIndex(t, m)
	left := len(x.labels) + x.rest.registered
	for _, v := range x.slots {
		left += len(v)
	}
	if left != 0 || len(m.mu.watchers) != 0 {
		t.Errorf("%d entries and %d watchers left", left, len(m.mu.watchers))
	}
}

// checkIndex checks that the buckets and the watchers agree.
func checkIndex(t *testing.T, m *Mux) {
	t.Helper()
	armed := map[*bucket]int{}
	for w := range m.mu.watchers {
		if len(w.members) == 0 {
			t.Fatal("a watcher stands nowhere")
		}
		for i, member := range w.members {
			if w.armed {
				armed[member.bucket]++
				if got := member.bucket.armed[member.pos]; got.watcher != w || got.number != i {
					t.Fatal("a position is wrong")
				}
			}
		}
	}
	for w := range m.mu.watchers {
		for _, member := range w.members {
			if len(member.bucket.armed) != armed[member.bucket] {
				t.Fatalf("bucket with %d armed watchers, want %d", len(member.bucket.armed), armed[member.bucket])
			}
		}
	}
}

// TestRing compares growing, shrinking and searching with a plain slice.
func TestRing(t *testing.T) {
	var r ring
	var plain []*Event
	rng := rand.New(rand.NewSource(2))
	rv := uint64(0)
	for step := range 20000 {
		if grow := step/4000%2 == 0; len(plain) == 0 || rng.Intn(10) < map[bool]int{true: 7, false: 3}[grow] {
			rv += 1 + uint64(rng.Intn(3))
			e := &Event{RV: rv, Object: &object.Object{Encoded: encoding.Encoded{Raw: make([]byte, rng.Intn(100))}}}
			r.push(e)
			plain = append(plain, e)
		} else {
			if r.pop() != plain[0] {
				t.Fatal("popped another event")
			}
			plain = plain[1:]
		}
		if r.len() != len(plain) || r.bytes != int64(len(plain))*eventOverhead {
			t.Fatalf("%d events of %d bytes, want %d", r.len(), r.bytes, len(plain))
		}
		if n := cap(r.events); n > 64+5*len(plain) || r.popped > 64+3*len(plain) {
			t.Fatalf("room for %d events, there are %d", n, len(plain))
		}
		if step%50 == 0 {
			want := rng.Intn(int(rv) + 2)
			n := 0
			for n < len(plain) && plain[n].RV <= uint64(want) {
				n++
			}
			if got := r.after(uint64(want)) - r.tail; got != uint64(n) {
				t.Fatalf("after(%d) is %d, want %d", want, got, n)
			}
		}
	}
}
