package watchmux_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// coalescingClient is a client with a coalescing watch. It tracks the state like an informer.
type coalescingClient struct {
	t     *testing.T
	sel   selector
	model *model
	mux   *watchmux.Mux
	w     *watchmux.Watcher
	woken int
	armed bool
	state map[string]uint64
	// rv is the version from which it would resume, whole the version up to which it has seen
	// everything, including additions and deletions.
	rv, whole uint64
	// truth is what it must see of the first changes. done is the number of its events up to whole,
	// and present is the state after them.
	truth   watchtest.Truth
	changes int
	done    int
	present map[string]uint64
	// batch are the events since it last reached the end. atOnce is set if no others arrived while
	// it read them.
	batch  []watchtest.WireEvent
	atOnce bool
}

func (c *coalescingClient) connect(from uint64) error {
	w, err := c.mux.Watch(from, filter(c.t, c.sel.ns, c.sel.labels, c.sel.fields), func() { c.woken++ })
	if err != nil {
		return err
	}
	w.Coalesce(false)
	c.w, c.rv, c.whole, c.armed, c.woken, c.batch, c.atOnce = w, from, from, false, 0, nil, false
	c.follow()
	c.done = len(c.truth.Between(0, from))
	for !c.armed && err == nil { // what came before is read at once
		err = c.read(8)
	}
	c.woken = 0
	return err
}

// follow extends the truth to the present.
func (c *coalescingClient) follow() {
	if c.present == nil {
		c.present = map[string]uint64{}
	}
	before := len(c.truth.Events)
	c.changes = c.model.extend(&c.truth, c.sel, c.changes)
	for _, e := range c.truth.Events[before:] {
		if e.Type == api.Deleted {
			delete(c.present, e.Key)
		} else {
			c.present[e.Key] = e.RV
		}
	}
}

// listAndWatch starts over.
func (c *coalescingClient) listAndWatch() {
	rv := c.mux.RV()
	c.follow()
	c.state = maps.Clone(c.present)
	if err := c.connect(rv); err != nil {
		c.t.Fatal(err)
	}
}

// read reads up to size events and returns an error of Next.
func (c *coalescingClient) read(size int) error {
	ds, rv, err := c.w.Next(nil, size)
	for _, d := range ds {
		e := watchtest.WireEvent{Type: d.Type, Key: d.Object.Key, RV: d.RV}
		if e.RV < c.rv {
			c.t.Fatalf("%+v: %s after version %d", c.sel, e, c.rv)
		}
		c.rv = e.RV
		c.batch = append(c.batch, e)
		if e.Type == api.Deleted {
			delete(c.state, e.Key)
		} else {
			c.state[e.Key] = e.RV
		}
	}
	if err != nil {
		return err
	}
	if rv < c.whole {
		c.t.Fatalf("%+v: seen everything up to %d, then up to %d", c.sel, c.whole, rv)
	}
	if c.armed = len(ds) < size && !c.w.Behind(); c.armed {
		c.check(rv)
	} else if rv > c.whole {
		c.t.Fatalf("%+v: seen everything up to %d in the middle, was %d", c.sel, rv, c.whole)
	}
	return nil
}

// check compares what the client knows at the end, where a bookmark may say rv.
func (c *coalescingClient) check(rv uint64) {
	c.t.Helper()
	c.follow()
	if !maps.Equal(c.state, c.present) {
		c.t.Fatalf("%+v at %d: %v, want %v", c.sel, rv, c.state, c.present)
	}
	var want []watchtest.WireEvent
	all := map[watchtest.WireEvent]bool{}
	for _, e := range c.truth.Events[c.done:] {
		all[e] = true
		if e.Type != api.Modified {
			want = append(want, e)
		}
	}
	modified := map[string]bool{}
	var got []watchtest.WireEvent
	for _, e := range c.batch {
		switch {
		case !all[e]:
			c.t.Fatalf("%+v: %s is not a state of the object", c.sel, e)
		case modified[e.Key] && c.atOnce:
			c.t.Fatalf("%+v: %s in the same batch as a modification: %v", c.sel, e, c.batch)
		case e.Type == api.Modified:
			modified[e.Key] = true
		default:
			got = append(got, e)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Fatalf("%+v up to %d: added and deleted %v, want %v", c.sel, rv, got, want)
	}
	c.rv, c.whole, c.done, c.batch, c.atOnce = rv, rv, len(c.truth.Events), nil, true
}

// TestCoalesce checks that watchers that read rarely receive each addition and deletion, and the
// last modification of each object; that they then agree with a list; and that they do not fall off
// a much shorter ring.
func TestCoalesce(t *testing.T) {
	for _, seed := range soak.Seeds(t, 3, 300) {
		w := newWriter(t, int64(seed))
		m := start(t, watchmux.Options{MaxEvents: 300}, 0)
		var clients []*coalescingClient
		expired, flushed, most := 0, 0, 0
		for step := range 3000 {
			switch n := w.rng.Intn(20); {
			case n < 12:
				if seed%2 == 0 {
					w.together = map[string]bool{} // no two changes of one version
				}
				m.Append(w.event())
				for _, c := range clients {
					for c.w.MustReadNow() {
						flushed++
						if err := c.read(8); err != nil {
							t.Fatal(err)
						}
						c.woken = 0
					}
				}
			case n == 12:
				m.Progress(w.feed.rv)
			case n == 13 && len(clients) < 8:
				c := &coalescingClient{t: t, sel: w.selector(), model: w.model, mux: m, state: map[string]uint64{}}
				switch {
				case seed%2 == 0:
					c.listAndWatch()
				case step > 300:
					continue
				default: // a version may be incomplete
					if err := c.connect(0); err != nil {
						t.Fatal(err)
					}
				}
				clients = append(clients, c)
			case n == 14 && seed%2 == 0 && len(clients) > 0 && w.rng.Intn(4) == 0: // interrupted, it resumes
				c := clients[w.rng.Intn(len(clients))]
				c.w.Stop()
				if err := c.connect(c.rv); err != nil {
					c.listAndWatch()
				}
			case n > 14 && len(clients) > 0 && (w.rng.Intn(30) == 0):
				c := clients[w.rng.Intn(len(clients))]
				if c.armed && c.woken == 0 {
					break
				}
				c.woken = 0
				for range 1 + w.rng.Intn(40) {
					err := c.read(1 + w.rng.Intn(8))
					if errors.Is(err, watchmux.ErrExpired) {
						expired++
						c.listAndWatch()
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if c.armed {
						break
					}
				}
				c.atOnce = c.armed
			}
			most = max(most, len(clients))
		}
		m.Close(watchmux.ErrStopped)
		for _, c := range clients {
			for err := error(nil); err == nil; err = c.read(1000) {
				continue
			}
			c.check(w.feed.rv)
		}
		if s := m.Stats(); s.Watchers != 0 || most < 2 || expired > 0 || flushed == 0 {
			t.Errorf("seed %d: %d clients, %d fell behind, %d early reads, stats %+v", seed, most, expired, flushed, s)
		}
	}
}

// TestCoalesceOrder checks what is delivered for one object.
func TestCoalesceOrder(t *testing.T) {
	x, y := state{"ns/a", "x", ""}, state{"ns/a", "y", ""}
	for name, test := range map[string]struct {
		labels string
		writes []any // a state, or the key of what is deleted
		want   string
	}{
		"modified":               {"", []any{x, x, x}, "MODIFIED ns/a@4"},
		"deleted":                {"", []any{x, "ns/a"}, "DELETED ns/a@3"},
		"created again":          {"", []any{x, "ns/a", x, x, x}, "DELETED ns/a@3 ADDED ns/a@4 MODIFIED ns/a@6"},
		"and deleted again":      {"", []any{"ns/a", x, x, "ns/a"}, "DELETED ns/a@2 ADDED ns/a@3 DELETED ns/a@5"},
		"leaves":                 {"l=x", []any{x, y, y}, "DELETED ns/a@3"},
		"leaves and comes back":  {"l=x", []any{x, y, y, x, x, x}, "DELETED ns/a@3 ADDED ns/a@5 MODIFIED ns/a@7"},
		"comes back and leaves":  {"l=x", []any{y, x, x, y, y}, "DELETED ns/a@2 ADDED ns/a@3 DELETED ns/a@5"},
		"changes in the midst":   {"l", []any{x, y, x, y, y}, "MODIFIED ns/a@6"},
		"never":                  {"l=z", []any{x, y, x}, ""},
		"two, one after another": {"", []any{x, state{"ns/b", "", ""}, x, state{"ns/b", "", ""}, x}, "ADDED ns/b@3 MODIFIED ns/b@5 MODIFIED ns/a@6"},
	} {
		f := newFeeder(t, 0)
		m := start(t, watchmux.Options{}, 0)
		m.Append(f.set(x))
		r := watch(t, m, 1, filter(t, "", test.labels, ""))
		r.Coalesce(false)
		drain(t, r)
		for _, write := range test.writes {
			switch write := write.(type) {
			case state:
				m.Append(f.set(write))
			case string:
				m.Append(f.remove(write))
			}
		}
		ds, rv := drain(t, r)
		var list []string
		for _, d := range ds {
			list = append(list, fmt.Sprintf("%s %s@%d", d.Type, d.Object.Key, d.RV))
		}
		if got := strings.Join(list, " "); got != test.want || rv != f.rv {
			t.Errorf("%s: %q up to %d, want %q up to %d", name, got, rv, test.want, f.rv)
		}
	}
}

// TestCoalesceFlushesEarlyWithoutRoom checks that a watcher that leaves so much unread that there
// is no more room must read now and is notified once, and that one that does not read continues
// from the ring as long as that reaches back.
func TestCoalesceFlushesEarlyWithoutRoom(t *testing.T) {
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{MaxEvents: 800}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(false)
	drain(t, r)
	add := func(n int) {
		for range n {
			m.Append(f.set(state{fmt.Sprintf("ns/%d", f.rv), "", ""}))
		}
	}
	add(300)
	if r.notified != 1 || r.MustReadNow() {
		t.Fatalf("at first: notified %d times, must read now: %t", r.notified, r.MustReadNow())
	}
	add(400)
	if r.notified != 2 || !r.MustReadNow() {
		t.Fatalf("at the bound: notified %d times, must read now: %t", r.notified, r.MustReadNow())
	}
	if ds, rv := drain(t, r); len(ds) != 700 || rv != 700 || r.MustReadNow() {
		t.Fatalf("%d events up to %d, must read now: %t", len(ds), rv, r.MustReadNow())
	}
	add(790) // more than the log holds; the ring has them
	add(350)
	if _, _, err := r.Next(nil, 1000); !errors.Is(err, watchmux.ErrExpired) {
		t.Errorf("far behind: %v", err)
	}
}

// TestCoalescedEventsOutliveTheRing checks that modifications do not fill the log, however many
// there are.
func TestCoalescedEventsOutliveTheRing(t *testing.T) {
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{MaxEvents: 100}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(false)
	drain(t, r)
	for i := range 10_000 {
		m.Append(f.set(state{fmt.Sprintf("ns/%d", i%20), "", ""}))
	}
	ds, rv := drain(t, r)
	if len(ds) != 40 || rv != 10_000 || r.notified != 1 {
		t.Errorf("%d events up to %d, notified %d times", len(ds), rv, r.notified)
	}
	for _, d := range ds[20:] {
		if d.Type != api.Modified || d.RV <= 9980 {
			t.Errorf("%s %s@%d", d.Type, d.Object.Key, d.RV)
		}
	}
}

// TestCoalescingReaderReachesTheEnd checks that events that arrive while a watcher reads are left
// for the next time, because it might read forever otherwise: it is behind, and not notified.
func TestCoalescingReaderReachesTheEnd(t *testing.T) {
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(false)
	drain(t, r)
	add := func(from, n int) {
		for i := range n {
			m.Append(f.set(state{fmt.Sprintf("ns/%d", from+i), "", ""}))
		}
	}
	next := func(size, want int, rv uint64, behind bool) {
		t.Helper()
		ds, got, err := r.Next(nil, size)
		if len(ds) != want || got != rv || err != nil || r.Behind() != behind {
			t.Errorf("%d events up to %d, behind %t, %v; want %d up to %d, %t", len(ds), got, r.Behind(), err, want, rv, behind)
		}
	}
	add(0, 10)
	next(4, 4, 0, false)
	add(8, 4) // modifies the last two waiting objects and adds two
	next(4, 4, 0, false)
	add(20, 1)
	next(4, 2, 0, true)
	next(10, 5, 15, false)
	if r.notified != 1 {
		t.Errorf("notified %d times", r.notified)
	}
	add(0, 1)
	if next(10, 1, 16, false); r.notified != 2 {
		t.Errorf("notified %d times", r.notified)
	}
}

// TestCoalescingWatcherEndsWithTheMux checks that waiting watchers are notified when the history
// ends, and receive the rest of it.
func TestCoalescingWatcherEndsWithTheMux(t *testing.T) {
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(false)
	drain(t, r)
	m.Append(f.set(state{"ns/a", "", ""}))
	m.Close(errGone)
	if r.notified != 2 || !r.MustReadNow() {
		t.Errorf("notified %d times, must read now: %t", r.notified, r.MustReadNow())
	}
	if ds, _, err := r.Next(nil, 10); len(ds) != 1 || !errors.Is(err, errGone) && err != nil {
		t.Errorf("%d events, %v", len(ds), err)
	}
	if _, _, err := r.Next(nil, 10); !errors.Is(err, errGone) {
		t.Errorf("then %v", err)
	}
}

// BenchmarkCoalesce measures the cost of events for 200 watchers that read after every 5,000
// modifications of 2,000 objects.
func BenchmarkCoalesce(b *testing.B) {
	const watchers, events = 200, 5000
	for _, coalesce := range []bool{false, true} {
		b.Run(map[bool]string{false: "every event", true: "coalesced"}[coalesce], func(b *testing.B) {
			h := newHall(b, 0, 2000, everything)
			h.mux = start(b, watchmux.Options{}, 0)
			h.n = 0
			states := make([]*object.Object, len(h.objects))
			copy(states, h.objects)
			var all []*watchmux.Watcher
			for range watchers {
				w, err := h.mux.Watch(0, nil, func() {})
				if err != nil {
					b.Fatal(err)
				}
				if coalesce {
					w.Coalesce(false)
				}
				all = append(all, w)
			}
			buffer := make([]watchmux.Delivery, 0, 256)
			deliveries := 0
			b.ReportAllocs()
			for b.Loop() {
				for range events {
					h.n++
					i := h.n * 7919 % len(states)
					next := *states[i]
					next.RV = uint64(h.n)
					h.mux.Append(&watchmux.Event{Type: api.Modified, RV: next.RV, Object: &next, Prev: states[i]})
					states[i] = &next
				}
				for _, w := range all {
					for n := cap(buffer); n == cap(buffer); deliveries += n {
						ds, _, err := w.Next(buffer[:0], cap(buffer))
						if err != nil {
							b.Fatal(err)
						}
						n = len(ds)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events*watchers), "ns/event/watcher")
			b.ReportMetric(float64(deliveries)/float64(b.N*watchers), "deliveries/watcher")
		})
	}
}
