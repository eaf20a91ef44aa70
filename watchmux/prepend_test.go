package watchmux_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// past is a Mux and everything that ever happened, most of it before the history of the Mux.
type past struct {
	*writer
	t      *testing.T
	mux    *watchmux.Mux
	all    []*watchmux.Event
	now    int64
	shared bool // several changes may have one version
	// prepended, resolved and failed count what was tried.
	prepended, resolved, failed int
}

func newPast(t *testing.T, seed int64, shared bool) *past {
	p := &past{writer: newWriter(t, seed), t: t, shared: shared}
	for range 300 {
		p.write()
	}
	p.mux = start(t, watchmux.Options{MaxAge: time.Minute, MaxEvents: 600, Clock: func() int64 { return p.now }}, p.feed.rv)
	p.together = nil // the list is complete
	p.feed.rv++
	return p
}

// write makes an event, of which the Mux gets a copy.
func (p *past) write() *watchmux.Event {
	if !p.shared {
		p.together = map[string]bool{}
	}
	e := p.event()
	p.all = append(p.all, e)
	return copyOf(e)
}

func copyOf(e *watchmux.Event) *watchmux.Event {
	return &watchmux.Event{Type: e.Type, RV: e.RV, Object: e.Object, Prev: e.Prev}
}

// prepend extends the history to from, or a version below. Some previous states are unknown.
func (p *past) prepend(from uint64) {
	for p.countAt(from) > 1 {
		from-- // a watch of the upstream from there would not bring the rest of that version
	}
	to := p.mux.Oldest()
	if from >= to {
		return
	}
	var events []*watchmux.Event
	seen := map[string]bool{}
	for _, e := range p.all {
		if e.RV <= from || e.RV > to {
			continue
		}
		e = copyOf(e)
		if !seen[e.Object.Key] && e.Type != api.Added && p.rng.Intn(4) > 0 {
			e.Prev, e.PrevUnknown = nil, true
		}
		seen[e.Object.Key] = true
		events = append(events, e)
	}
	appended := p.mux.Stats().Appended
	switch can, err := p.mux.CanPrepend(), p.mux.Prepend(from, to, events); {
	case err == nil && can:
		p.prepended++
		if s := p.mux.Stats(); s.Oldest != from || s.Appended != appended {
			p.t.Fatalf("after prepending from %d: %+v", from, s)
		}
	case errors.Is(err, watchmux.ErrMoved) && !can, errors.Is(err, watchmux.ErrNoRoom):
		p.failed++
	default:
		p.t.Fatalf("prepending %d to %d: %v, possible: %t", from, to, err, can)
	}
}

func (p *past) countAt(rv uint64) (n int) {
	for _, e := range p.all {
		if e.RV == rv {
			n++
		}
	}
	return n
}

// resolve sets the unknown previous states above rv.
func (p *past) resolve(rv uint64) {
	prev := map[*watchmux.Event]*object.Object{}
	unresolved, _ := p.mux.Unresolved(rv)
	for _, e := range unresolved {
		i := slices.IndexFunc(p.all, func(o *watchmux.Event) bool { return o.RV == e.RV && o.Object == e.Object })
		prev[e] = p.all[i].Prev
		p.resolved++
	}
	if err := p.mux.ResolvePrev(prev); err != nil {
		p.t.Fatal(err)
	}
}

// checkSince undoes the history down to rv.
func (p *past) checkSince(rv uint64) {
	events, err := p.mux.Since(rv)
	if unresolved, _ := p.mux.Unresolved(rv); rv < p.mux.Oldest() || len(unresolved) > 0 {
		if !errors.Is(err, watchmux.ErrExpired) {
			p.t.Fatalf("since %d: %v", rv, err)
		}
		return
	}
	if err != nil {
		p.t.Fatal(err)
	}
	state := map[string]uint64{}
	for key, o := range p.feed.last {
		state[key] = o.RV
	}
	for _, e := range slices.Backward(events) {
		if e.Prev == nil {
			delete(state, e.Object.Key)
		} else {
			state[e.Object.Key] = e.Prev.RV
		}
	}
	if want := p.model.truth(selector{}).State(rv); !maps.Equal(state, want) {
		p.t.Fatalf("undone to %d: %v, want %v", rv, state, want)
	}
}

// someVersion is a version of the history or before it.
func (p *past) someVersion() uint64 {
	return p.feed.rv - uint64(p.rng.Intn(int(min(p.feed.rv, 700))))
}

// watchFrom starts a watch with connect. A history that does not reach back is extended, as the
// cache does; ok is false if that is not possible.
func (p *past) watchFrom(from uint64, sel selector, connect func(uint64) error) (ok bool) {
	err := connect(from)
	if errors.Is(err, watchmux.ErrExpired) {
		p.prepend(from)
		if err = connect(from); errors.Is(err, watchmux.ErrExpired) && from >= p.mux.Oldest() {
			if !filter(p.t, sel.ns, sel.labels, sel.fields).IsMutable() && p.mux.CanPrepend() {
				p.t.Fatalf("%+v from %d needs previous states", sel, from)
			}
			p.resolve(from)
			err = connect(from)
		}
	}
	if err != nil && !errors.Is(err, watchmux.ErrExpired) {
		p.t.Fatal(err)
	}
	return err == nil
}

// TestPrepend checks that a history that is extended backwards, trimmed and extended again serves a
// watch from any version as one that was there all the time would.
func TestPrepend(t *testing.T) {
	for _, seed := range soak.Seeds(t, 4, 300) {
		p := newPast(t, int64(seed), seed%2 == 0)
		var clients []*client
		armed := map[*client]bool{}
		for range 2000 {
			switch n := p.rng.Intn(12); {
			case n < 3:
				var events []*watchmux.Event
				for range 1 + p.rng.Intn(4) {
					events = append(events, p.write())
				}
				p.mux.Append(events...)
			case n == 3:
				p.now += int64(p.rng.Intn(30)) * int64(time.Second)
			case n == 4:
				p.mux.Progress(p.feed.rv)
			case n == 5 && p.rng.Intn(4) == 0:
				p.prepend(p.someVersion())
			case n == 6 && !p.shared:
				p.checkSince(p.someVersion())
			case n < 9 && len(clients) < 12:
				c := &client{sel: p.selector(), rng: p.rng, mux: p.mux}
				if p.watchFrom(p.someVersion(), c.sel, func(from uint64) error { return c.connect(t, from) }) {
					clients = append(clients, c)
				}
			case len(clients) > 0:
				i := p.rng.Intn(len(clients))
				c := clients[i]
				if armed[c] && len(c.woken) == 0 {
					if p.rng.Intn(10) == 0 {
						checkNothing(t, c, p.model)
					}
					break
				}
				if armed[c] {
					<-c.woken
				}
				ok, err := c.read(1 + p.rng.Intn(3))
				armed[c] = ok
				switch {
				case err == nil && p.rng.Intn(8) > 0:
					continue
				case err == nil:
					c.w.Stop() // and goes on
				case !errors.Is(err, watchmux.ErrExpired):
					t.Fatal(err)
				}
				armed[c] = false
				if !p.watchFrom(c.last(), c.sel, func(from uint64) error { return c.connect(t, from) }) {
					c.watches[len(c.watches)-1].Cut = true
					checkClient(t, seed, c, p.model)
					clients = slices.Delete(clients, i, i+1)
				}
			}
		}
		p.mux.Close(watchmux.ErrStopped)
		for _, c := range clients {
			finish(t, c)
			if _, _, err := c.w.Next(nil, 1); errors.Is(err, watchmux.ErrExpired) {
				c.watches[len(c.watches)-1].Cut = true
			}
			checkClient(t, seed, c, p.model)
		}
		s := p.mux.Stats()
		if s.Watchers != 0 || s.Stale != 0 || p.prepended < 10 || p.resolved < 10 {
			t.Errorf("seed %d: %d prepended, %d not, %d resolved, stats %+v", seed, p.prepended, p.failed, p.resolved, s)
		}
	}
}

func checkClient(t *testing.T, seed uint64, c *client, m *model) {
	t.Helper()
	if err := watchtest.Resumable(c.watches, m.truth(c.sel)); err != nil {
		t.Fatalf("seed %d, %+v: %v", seed, c.sel, err)
	}
}

// TestPrependCoalesce does the same with watchers that coalesce, beside a log that may reach back
// further than the ring did when older events were prepended.
func TestPrependCoalesce(t *testing.T) {
	for _, seed := range soak.Seeds(t, 3, 300) {
		p := newPast(t, int64(seed), false)
		var clients []*coalescingClient
		expired, old := 0, 0
		connect := func(c *coalescingClient, from uint64) bool {
			begun := p.mux.Position()
			ok := p.watchFrom(from, c.sel, func(from uint64) error {
				c.truth, c.changes, c.present = watchtest.Truth{}, 0, nil
				c.state = p.model.truth(c.sel).State(from)
				return c.connect(from)
			})
			if ok && begun > 0 && from+20 < p.mux.RV() {
				old++
			}
			return ok
		}
		for range 2000 {
			switch n := p.rng.Intn(20); {
			case n < 9:
				p.mux.Append(p.write())
				for _, c := range clients {
					for c.w.MustReadNow() {
						if err := c.read(8); err != nil {
							t.Fatal(err)
						}
						c.woken = 0
					}
				}
			case n < 11:
				p.now += int64(p.rng.Intn(30)) * int64(time.Second)
			case n == 11:
				p.mux.Progress(p.feed.rv)
			case n == 12 && p.rng.Intn(4) == 0:
				p.prepend(p.someVersion())
			case n == 13 && len(clients) < 8:
				c := &coalescingClient{t: t, sel: p.selector(), model: p.model, mux: p.mux}
				if connect(c, p.someVersion()) {
					clients = append(clients, c)
				}
			case n == 14 && len(clients) > 0 && p.rng.Intn(4) == 0:
				i := p.rng.Intn(len(clients))
				clients[i].w.Stop()
				if !connect(clients[i], clients[i].rv) {
					clients = slices.Delete(clients, i, i+1)
				}
			case n > 14 && len(clients) > 0 && p.rng.Intn(20) == 0:
				i := p.rng.Intn(len(clients))
				c := clients[i]
				if c.armed && c.woken == 0 {
					break
				}
				c.woken = 0
				for range 1 + p.rng.Intn(40) {
					err := c.read(1 + p.rng.Intn(8))
					if errors.Is(err, watchmux.ErrExpired) {
						expired++
						clients = slices.Delete(clients, i, i+1)
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
			if wrong := watchmux.CheckHolds(p.mux); wrong != "" {
				t.Fatal(wrong)
			}
		}
		p.mux.Close(watchmux.ErrStopped)
		for _, c := range clients {
			for err := error(nil); err == nil; err = c.read(1000) {
				continue
			}
			c.check(p.feed.rv)
		}
		if s := p.mux.Stats(); s.Watchers != 0 || p.prepended < 5 || old < 5 {
			t.Errorf("seed %d: %d prepended, %d not, %d watches began before, %d expired, stats %+v", seed, p.prepended, p.failed, old, expired, s)
		}
	}
}

// TestPrependDoesNotReuseLostPositions checks that a watcher that has fallen off the ring is not given
// prepended events that have the numbers of those that it has not read.
func TestPrependDoesNotReuseLostPositions(t *testing.T) {
	for _, coalesces := range []bool{false, true} {
		f, now := newFeeder(t, 0), int64(0)
		m := start(t, watchmux.Options{MaxAge: time.Second, Clock: func() int64 { return now }}, 0)
		r := watch(t, m, 0, nil)
		if coalesces {
			r.Coalesce(false)
		}
		drain(t, r)
		var all []*watchmux.Event
		for i := range 10 {
			if i == 8 {
				now += 2 * int64(time.Second) // the ring drops what came before
			}
			e := f.set(state{fmt.Sprintf("ns/%d", i), "", ""})
			all = append(all, e)
			m.Append(copyOf(e))
		}
		if m.Oldest() != 8 {
			t.Fatalf("the history begins at %d", m.Oldest())
		}
		position := m.Position()
		if err := m.Prepend(0, 8, []*watchmux.Event{copyOf(all[0]), copyOf(all[7])}); err != nil {
			t.Fatal(err)
		}
		ds, _, err := r.Next(nil, 100)
		if coalesces {
			if err != nil || len(ds) != 10 {
				t.Errorf("coalescing: %s, %v", show(ds), err)
			}
		} else if !errors.Is(err, watchmux.ErrExpired) {
			t.Errorf("%s, %v", show(ds), err)
		}
		const want = "ADDED ns/0@1:1 ADDED ns/7@8:8 ADDED ns/8@9:9 ADDED ns/9@10:10 "
		if ds, _ := drain(t, watch(t, m, 0, nil)); show(ds) != want {
			t.Errorf("a new watch: %s", show(ds))
		}
		late := watch(t, m, 0, nil)
		late.Coalesce(false)
		if ds, _ := drain(t, late); show(ds) != want {
			t.Errorf("a new watch that coalesces: %s", show(ds))
		}
		if events, all := m.Between(position-4, position); all || len(events) != 2 {
			t.Errorf("events between two positions: %d, all %t", len(events), all)
		}
	}
}

// TestPrependRejects checks what is not prepended.
func TestPrependRejects(t *testing.T) {
	f, now := newFeeder(t, 10), int64(0)
	at := func(rv uint64) *watchmux.Event {
		f.rv = rv - 1
		return f.set(state{fmt.Sprintf("ns/%d", rv), "", ""})
	}
	begin := func() *watchmux.Mux {
		now = 0
		m := start(t, watchmux.Options{MaxAge: time.Second, MaxEvents: 10, MaxBytes: 8 << 10, Clock: func() int64 { return now }}, 20)
		m.Append(at(21), at(22))
		return m
	}
	if err := begin().Prepend(10, 20, []*watchmux.Event{at(11), at(20)}); err != nil {
		t.Error(err)
	}
	if err := begin().Prepend(10, 20, nil); err != nil {
		t.Error(err)
	}
	for name, events := range map[string][]*watchmux.Event{
		"at the start": {at(10)}, "above the end": {at(21)}, "descending": {at(13), at(12)},
		"with an unknown previous state, but added": {{Type: api.Added, RV: 12, Object: at(12).Object, PrevUnknown: true}},
	} {
		if err := begin().Prepend(10, 20, events); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var many []*watchmux.Event
	for rv := uint64(11); rv < 20; rv++ {
		many = append(many, at(rv))
	}
	m := begin()
	if n, bytes := m.Room(); n != 8 || bytes <= 5<<10 || bytes > 6<<10 {
		t.Errorf("room for %d events, %d bytes", n, bytes)
	}
	if err := m.Prepend(10, 20, many); !errors.Is(err, watchmux.ErrNoRoom) {
		t.Errorf("too many: %v", err)
	}
	if err := m.Prepend(10, 19, nil); !errors.Is(err, watchmux.ErrMoved) {
		t.Errorf("to another version: %v", err)
	}
	now += int64(2 * time.Second)
	m.Skip(30)
	m.Append(at(25)) // what came before is dropped, and the history begins before the gap
	now += int64(2 * time.Second)
	m.Append(at(27))
	m.Progress(30)
	if m.Oldest() != 25 || m.CanPrepend() {
		t.Fatalf("the history begins at %d, within a gap", m.Oldest())
	}
	if err := m.Prepend(10, 25, nil); !errors.Is(err, watchmux.ErrMoved) {
		t.Errorf("to a version within a gap: %v", err)
	}
	m.Close(errGone)
	if err := m.Prepend(10, m.Oldest(), nil); !errors.Is(err, errGone) {
		t.Errorf("after the end: %v", err)
	}
}

// TestPrependedFrames checks that frames of prepended events are counted and dropped.
func TestPrependedFrames(t *testing.T) {
	f := newFeeder(t, 10)
	m := start(t, watchmux.Options{MaxFrameBytes: 1000}, 20)
	old := f.set(state{"ns/a", "", ""})
	f.rv = 20
	m.Append(f.set(state{"ns/a", "", ""}))
	if err := m.Prepend(10, 20, []*watchmux.Event{old}); err != nil {
		t.Fatal(err)
	}
	ds, _ := drain(t, watch(t, m, 10, nil))
	for _, d := range ds {
		if _, err := d.Frame(api.Representation{}, 0, func(watchmux.Delivery) ([]byte, error) { return make([]byte, 300), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.FrameBytes != 600 {
		t.Errorf("%d bytes of frames", s.FrameBytes)
	}
	m.Append(f.set(state{"ns/b", "", ""}))
	if s := m.Stats(); s.FrameBytes != 300 {
		t.Errorf("%d bytes of frames after some were dropped", s.FrameBytes)
	}
}
