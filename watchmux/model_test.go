package watchmux_test

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// model is the history as the test wrote it. The truth of any selector follows from it without code
// of the multiplexer.
type model struct {
	mu      sync.Mutex
	changes []change
}

type change struct {
	rv            uint64
	before, after *state // nil: absent
}

// selector is a filter in apimachinery's syntax.
type selector struct{ ns, labels, fields string }

func (s selector) matches(st *state) bool {
	if st == nil {
		return false
	}
	ns, name, _ := strings.Cut(st.key, "/")
	if s.ns != "" && s.ns != ns {
		return false
	}
	l := labels.Set{}
	if st.label != "" {
		l["l"] = st.label
	}
	labelSel, err := labels.Parse(s.labels)
	if err != nil {
		panic(err)
	}
	return labelSel.Matches(l) &&
		fields.ParseSelectorOrDie(s.fields).Matches(fields.Set{"metadata.name": name, "metadata.namespace": ns, "spec.node": st.node})
}

// truth returns what a watcher with the selector must see of the whole history.
func (m *model) truth(s selector) watchtest.Truth {
	t := watchtest.Truth{Complete: true, Shared: true}
	m.extend(&t, s, 0)
	return t
}

// extend appends what a watcher with the selector must see of the history from a change on, and
// returns the number of changes.
func (m *model) extend(t *watchtest.Truth, s selector, from int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := map[state]bool{}
	matches := func(st *state) bool {
		if st == nil {
			return false
		}
		got, ok := memo[*st]
		if !ok {
			got = s.matches(st)
			memo[*st] = got
		}
		return got
	}
	for _, c := range m.changes[from:] {
		before, after := matches(c.before), matches(c.after)
		e := watchtest.WireEvent{RV: c.rv}
		switch {
		case before && after:
			e.Type, e.Key = api.Modified, c.after.key
		case after:
			e.Type, e.Key = api.Added, c.after.key
		case before:
			e.Type, e.Key = api.Deleted, c.before.key
		default:
			continue
		}
		t.Events = append(t.Events, e)
	}
	return len(m.changes)
}

// writer makes random events and their model.
type writer struct {
	rng   *rand.Rand
	feed  *feeder
	model *model
	now   map[string]state
	// together are the keys changed at the current version.
	together map[string]bool
}

func newWriter(t testing.TB, seed int64) *writer {
	return &writer{rng: rand.New(rand.NewSource(seed)), feed: newFeeder(t, 0), model: &model{}, now: map[string]state{}}
}

func (w *writer) event() *watchmux.Event {
	key := fmt.Sprintf("ns%d/obj%d", w.rng.Intn(3), w.rng.Intn(12))
	if w.feed.rv > 0 && !w.together[key] && len(w.together) > 0 && w.rng.Intn(3) == 0 {
		w.feed.rv-- // another change of the same transaction
	} else {
		w.feed.rv += uint64(w.rng.Intn(3)) // versions also count writes to other resources
		w.together = map[string]bool{}
	}
	w.together[key] = true
	old, exists := w.now[key]
	c := change{}
	if exists {
		c.before = &old
	}
	var e *watchmux.Event
	if exists && w.rng.Intn(4) == 0 {
		delete(w.now, key)
		e = w.feed.remove(key)
	} else {
		st := state{key, w.pick("", "x", "y", "z"), w.pick("node1", "node2", "")}
		w.now[key] = st
		c.after = &st
		e = w.feed.set(st)
	}
	c.rv = e.RV
	w.model.mu.Lock()
	w.model.changes = append(w.model.changes, c)
	w.model.mu.Unlock()
	return e
}

func (w *writer) pick(from ...string) string { return from[w.rng.Intn(len(from))] }

func (w *writer) selector() selector {
	if w.rng.Intn(4) == 0 {
		return selector{}
	}
	return selector{
		ns:     w.pick("", "", "ns0", "ns1"),
		labels: w.pick("", "", "l=x", "l in (x,y)", "l!=x", "!l", "l", "l=x,l!=y", "l notin (x,z)", "l=nobody"),
		fields: w.pick("", "", "spec.node=node1", "spec.node!=node1", "metadata.name=obj3", "metadata.namespace=ns2", "metadata.name=obj1,spec.node="),
	}
}

// client watches, is interrupted at times, resumes at its version and records what it saw.
type client struct {
	sel     selector
	rng     *rand.Rand
	mux     *watchmux.Mux
	watches []watchtest.Watch
	w       *watchmux.Watcher
	// woken has room for one value, which says that notify was called.
	woken chan struct{}
}

func (c *client) connect(t testing.TB, from uint64) error {
	woken := make(chan struct{}, 1)
	w, err := c.mux.Watch(from, filter(t, c.sel.ns, c.sel.labels, c.sel.fields), func() {
		select {
		case woken <- struct{}{}:
		default:
			t.Error("notified twice without a Next in between")
		}
	})
	if err != nil {
		return err
	}
	c.w, c.woken = w, woken
	c.watches = append(c.watches, watchtest.Watch{From: from})
	return nil
}

// read reads what is available in portions of random size. armed says whether the watcher waits for
// a notification now.
func (c *client) read(portions int) (armed bool, err error) {
	for range portions {
		size := 1 + c.rng.Intn(8)
		ds, rv, err := c.w.Next(nil, size)
		if len(ds) > size && ds[size-1].RV != ds[len(ds)-1].RV {
			return false, fmt.Errorf("%d deliveries for %d", len(ds), size)
		}
		watch := &c.watches[len(c.watches)-1]
		for _, d := range ds {
			watch.Events = append(watch.Events, watchtest.WireEvent{Type: d.Type, Key: d.Object.Key, RV: d.RV})
		}
		if err != nil {
			return false, err
		}
		// Every version that Next returns must be usable as a bookmark.
		watch.Events = append(watch.Events, watchtest.WireEvent{Type: api.Bookmark, RV: rv})
		if len(ds) < size {
			return true, nil
		}
	}
	return false, nil
}

func (c *client) last() uint64 { return c.watches[len(c.watches)-1].Last() }

// TestModel interleaves writes and clients in one goroutine, so that every step can be checked:
// clients that were not woken must have nothing to read.
func TestModel(t *testing.T) {
	for _, seed := range soak.Seeds(t, 4, 300) {
		w := newWriter(t, int64(seed))
		m := start(t, watchmux.Options{MaxEvents: 200}, 0)
		var clients []*client
		armed := map[*client]bool{}
		for range 4000 {
			switch n := w.rng.Intn(10); {
			case n < 2 || len(clients) == 0:
				var events []*watchmux.Event
				for range 1 + w.rng.Intn(4) {
					events = append(events, w.event())
				}
				m.Append(events...)
			case n == 4:
				if w.rng.Intn(4) == 0 {
					m.Progress(w.feed.rv)
				}
			case n == 5 && len(clients) < 12:
				c := &client{sel: w.selector(), rng: w.rng, mux: m}
				if err := c.connect(t, m.Oldest()+uint64(w.rng.Intn(int(m.RV()-m.Oldest())+1))); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, c)
			default:
				c := clients[w.rng.Intn(len(clients))]
				if armed[c] && len(c.woken) == 0 {
					if w.rng.Intn(10) == 0 { // reads the whole history
						checkNothing(t, c, w.model)
					}
					break
				}
				stepClient(t, c, armed)
			}
		}
		m.Close(watchmux.ErrStopped)
		for i, c := range clients {
			finish(t, c)
			if err := watchtest.Resumable(c.watches, w.model.truth(c.sel)); err != nil {
				t.Fatalf("seed %d, client %d %+v: %v", seed, i, c.sel, err)
			}
		}
		if s := m.Stats(); s.Watchers != 0 || s.Stale != 0 {
			t.Errorf("seed %d: stats %+v", seed, s)
		}
	}
}

func stepClient(t *testing.T, c *client, armed map[*client]bool) {
	t.Helper()
	if armed[c] {
		<-c.woken
		armed[c] = false
	}
	if c.rng.Intn(10) == 0 {
		c.w.Stop()
		reconnect(t, c, c.last())
		return
	}
	ok, err := c.read(1 + c.rng.Intn(3))
	switch {
	case errors.Is(err, watchmux.ErrExpired):
		reconnect(t, c, c.mux.RV())
	case err != nil:
		t.Fatal(err)
	default:
		armed[c] = ok
	}
}

// reconnect resumes. A client that is too far behind starts over, like one that lists.
func reconnect(t testing.TB, c *client, from uint64) {
	if from == c.last() {
		if err := c.connect(t, from); err == nil {
			return
		}
	}
	c.watches = nil // its earlier events are checked elsewhere
	if err := c.connect(t, c.mux.RV()); err != nil {
		t.Fatal(err)
	}
}

// checkNothing checks that an armed watcher that was not woken has nothing to read.
func checkNothing(t *testing.T, c *client, m *model) {
	t.Helper()
	if missed := m.truth(c.sel).Between(c.last(), c.mux.RV()); len(missed) > 0 {
		t.Fatalf("%+v was not woken for %v", c.sel, missed)
	}
}

// finish reads until the end.
func finish(t testing.TB, c *client) {
	for {
		_, err := c.read(1000)
		switch {
		case errors.Is(err, watchmux.ErrStopped):
			return
		case errors.Is(err, watchmux.ErrExpired):
			return
		case err != nil:
			t.Error(err)
			return
		}
	}
}

// TestConcurrent runs a goroutine per client and one writer, for the race detector and for lost
// wake-ups, after which a client would wait forever.
func TestConcurrent(t *testing.T) {
	const clients, batches = 24, 400
	w := newWriter(t, 99)
	m := start(t, watchmux.Options{MaxEvents: 1 << 20}, 0)
	var wg sync.WaitGroup
	all := make([]*client, clients)
	for i := range all {
		c := &client{sel: w.selector(), rng: rand.New(rand.NewSource(int64(i))), mux: m}
		all[i] = c
		if err := c.connect(t, 0); err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				armed, err := c.read(1)
				if err != nil {
					if !errors.Is(err, watchmux.ErrStopped) {
						t.Error(err)
					}
					return
				}
				if armed {
					<-c.woken
				}
				if c.rng.Intn(50) == 0 {
					c.w.Stop()
					if err := c.connect(t, c.last()); err != nil {
						if !errors.Is(err, watchmux.ErrStopped) {
							t.Error(err)
						}
						c.watches[len(c.watches)-1].Cut = true
						return
					}
				}
			}
		}()
	}
	for range batches {
		var events []*watchmux.Event
		for range 1 + w.rng.Intn(8) {
			events = append(events, w.event())
		}
		m.Append(events...)
		m.Progress(w.feed.rv)
		if w.rng.Intn(20) == 0 {
			m.Stats()
			if _, err := m.Since(w.feed.rv / 2); err != nil {
				t.Error(err)
			}
		}
	}
	m.Close(watchmux.ErrStopped)
	wg.Wait()
	for i, c := range all {
		truth := w.model.truth(c.sel)
		if err := watchtest.Resumable(c.watches, truth); err != nil {
			t.Errorf("client %d %+v: %v", i, c.sel, err)
		}
		// A client connected at the end has seen everything.
		if last := c.watches[len(c.watches)-1]; len(last.Events) > 0 && last.Last() < w.feed.rv && len(truth.Between(last.Last(), w.feed.rv)) > 0 {
			if _, _, err := c.w.Next(nil, 1); !errors.Is(err, watchmux.ErrStopped) {
				t.Errorf("client %d stopped reading at %d of %d", i, last.Last(), w.feed.rv)
			}
		}
	}
}
