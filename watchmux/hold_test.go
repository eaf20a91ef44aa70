package watchmux_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// portionClient is a client with a coalescing watch that reads a portion at a time.
type portionClient struct {
	t         *testing.T
	model     *model
	sel       selector
	size, gap int
	w         *watchmux.Watcher
	state     map[string]uint64
	// last is the version of the last event, whole the version up to which it has everything.
	last, whole uint64
	truth       watchtest.Truth
	changes     int
	// got are the additions and deletions so far. at is the step at which everything was last read.
	got         []watchtest.WireEvent
	at, longest int
	slow        bool // reads so rarely that its hold is released
}

// read reads a portion, or everything if it cannot be held.
func (c *portionClient) read(step int) {
	c.t.Helper()
	for {
		ds, rv, err := c.w.Next(nil, c.size)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, d := range ds {
			e := watchtest.WireEvent{Type: d.Type, Key: d.Object.Key, RV: d.RV}
			if e.RV < c.last {
				c.t.Fatalf("%+v: %s after version %d", c.sel, e, c.last)
			}
			c.last = e.RV
			if e.Type == api.Deleted {
				delete(c.state, e.Key)
			} else {
				c.state[e.Key] = e.RV
			}
			if e.Type != api.Modified {
				c.got = append(c.got, e)
			}
		}
		if rv >= c.last && rv > c.whole {
			c.check(rv)
			c.whole = rv
			c.longest, c.at = max(c.longest, step-c.at), step
		}
		if len(ds) < c.size || c.w.Hold() {
			return
		}
	}
}

// check compares what the client knows, where a bookmark may say rv.
func (c *portionClient) check(rv uint64) {
	c.t.Helper()
	c.changes = c.model.extend(&c.truth, c.sel, c.changes)
	if want := c.truth.State(rv); !maps.Equal(c.state, want) {
		c.t.Fatalf("%+v at %d: %v, want %v", c.sel, rv, c.state, want)
	}
	var want []watchtest.WireEvent
	for _, e := range c.truth.Between(0, rv) {
		if e.Type != api.Modified {
			want = append(want, e)
		}
	}
	if !slices.Equal(c.got, want) {
		c.t.Fatalf("%+v at %d: added and deleted %v, want %v", c.sel, rv, c.got, want)
	}
}

// TestHold checks that watchers that read a few events at a time, while more arrive than they can
// read, repeatedly reach the state of a version and learn which; that versions ascend; and that no
// addition or deletion is lost.
func TestHold(t *testing.T) {
	for _, seed := range soak.Seeds(t, 3, 200) {
		w := newWriter(t, int64(seed))
		now := int64(0)
		m := start(t, watchmux.Options{MaxEvents: 4000, Clock: func() int64 { return now }}, 0)
		tick := int64(10 * time.Millisecond)
		if seed%3 == 0 {
			tick = int64(time.Second) // holds are not read in time
		}
		var clients []*portionClient
		for n := range 6 {
			c := &portionClient{t: t, model: w.model, size: 1 + w.rng.Intn(4), state: map[string]uint64{}, truth: watchtest.Truth{Complete: true}}
			c.gap = c.size
			if n > 3 {
				c.slow, c.gap = true, 250*n
			}
			if n > 0 && n < 5 {
				c.sel = w.selector()
			}
			c.w = watch(t, m, 0, filter(t, c.sel.ns, c.sel.labels, c.sel.fields)).Watcher
			c.w.Coalesce(true)
			clients = append(clients, c)
		}
		burst := watch(t, m, 0, nil) // does not hold, and reads everything at once
		burst.Coalesce(false)
		drain(t, burst)
		for step := range 2000 {
			now += tick
			w.together = map[string]bool{}
			m.Append(w.event(), w.event())
			for _, c := range clients {
				if step%c.gap == 0 {
					c.read(step)
				}
			}
			if problem := watchmux.CheckHolds(m); problem != "" {
				t.Fatalf("seed %d: %s", seed, problem)
			}
			if step%100 == 0 {
				modified := map[string]bool{}
				ds, _ := drain(t, burst)
				for _, d := range ds {
					if d.Type == api.Modified && modified[d.Object.Key] {
						t.Fatalf("seed %d: %s delivered twice to a watcher without a hold", seed, d.Object.Key)
					}
					modified[d.Object.Key] = d.Type == api.Modified
				}
			}
		}
		for _, c := range clients {
			if !c.slow && (c.longest > 1000 || c.at < 1000) {
				t.Errorf("seed %d: %+v: all was read %d steps apart, last at %d", seed, c.sel, c.longest, c.at)
			}
			for i := 0; i < 10_000 && c.whole < w.feed.rv; i++ {
				c.read(2000)
			}
			c.check(w.feed.rv)
		}
		m.Close(watchmux.ErrStopped)
	}
}

// TestHoldIsFair checks that constantly changing objects are delivered, however little is read at a
// time, and that rarely changing ones do not wait longer than one round.
func TestHoldIsFair(t *testing.T) {
	const hot = 50
	steps := soak.Cases(1200, 4000)
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(true)
	delivered := map[string]int{}
	written, waited := 0, 0
	for step := range steps {
		for i := range hot { // always the same order, all again before one is read
			m.Append(f.set(state{fmt.Sprintf("ns/hot%d", i), "", ""}))
		}
		if step%200 == 100 {
			m.Append(f.set(state{"ns/rare", "", ""}))
			written = step
		}
		ds, _, err := r.Next(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) > 0 {
			delivered[ds[0].Object.Key]++
			if ds[0].Object.Key == "ns/rare" {
				waited = max(waited, step-written)
			}
			r.Hold()
		}
	}
	if len(delivered) != hot+1 || delivered["ns/rare"] < steps/200-1 || waited > hot+5 {
		t.Errorf("%d objects, the rare one %d times, after %d steps at most", len(delivered), delivered["ns/rare"], waited)
	}
	for key, n := range delivered {
		if n < steps/(hot+1)*3/4 && key != "ns/rare" {
			t.Errorf("%s delivered %d times", key, n)
		}
	}
	if s := m.Stats(); s.Bytes > 64<<20 {
		t.Errorf("%+v", s)
	}
}

// TestUnreadHoldsDoNotDelayOthers checks that watchers that read nothing of their holds do not keep
// others from having rounds, however many there are.
func TestUnreadHoldsDoNotDelayOthers(t *testing.T) {
	const hot = 50
	steps := soak.Cases(1000, 2000)
	now := int64(0)
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{Clock: func() int64 { return now }}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(true)
	last := map[string]int{}
	version, at, waited, apart := uint64(0), 0, 0, 0
	for step := range steps {
		now += int64(500 * time.Millisecond)
		if step%100 == 50 && step < steps/2 {
			stuck := watch(t, m, f.rv, nil)
			stuck.Coalesce(true)
			drain(t, stuck)
		}
		for i := range hot {
			m.Append(f.set(state{fmt.Sprintf("ns/hot%d", i), "", ""}))
		}
		ds, rv, err := r.Next(nil, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			waited = max(waited, step-last[d.Object.Key])
			last[d.Object.Key] = step
		}
		if rv > version {
			apart = max(apart, step-at)
			version, at = rv, step
		}
		r.Hold()
		if problem := watchmux.CheckHolds(m); problem != "" {
			t.Fatal(problem)
		}
	}
	for key, step := range last {
		waited = max(waited, steps-step)
		if step == 0 {
			t.Errorf("%s was not delivered", key)
		}
	}
	// Ten reads are a round, after a short wait for the others.
	if len(last) != hot || waited > 40 || apart > 40 {
		t.Errorf("%d objects, after %d steps at most, versions %d apart", len(last), waited, apart)
	}
}

// TestHoldExpires checks that the rest of a hold must be read at once after some time, and that a
// watcher that does not read it delays no other.
func TestHoldExpires(t *testing.T) {
	now := int64(0)
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{Clock: func() int64 { return now }}, 0)
	slow, other := watch(t, m, 0, nil), watch(t, m, 0, nil)
	for _, r := range []*reader{slow, other} {
		r.Coalesce(true)
		drain(t, r)
	}
	write := func() {
		for i := range 20 {
			m.Append(f.set(state{fmt.Sprintf("ns/%d", i), "", ""}))
		}
	}
	next := func(r *reader, size, want int, rv uint64) {
		t.Helper()
		if ds, got, err := r.Next(nil, size); len(ds) != want || got != rv || err != nil {
			t.Errorf("%d events up to %d, %v; want %d up to %d", len(ds), got, err, want, rv)
		}
	}
	write() // 20 additions
	next(slow, 5, 5, 0)
	if !slow.Hold() {
		t.Error("not held")
	}
	write()
	next(other, 100, 20, 20)
	now += int64(watchmux.HoldFor) - 1
	next(slow, 5, 5, 0)
	if !slow.Hold() {
		t.Error("not held any more")
	}
	if now++; slow.Hold() {
		t.Error("held for too long")
	}
	next(other, 5, 5, 20)
	if !other.Hold() {
		t.Error("the other need not read at once")
	}
	write()
	now += int64(watchmux.HoldFor)
	next(other, 5, 0, 20) // the rest was modified since; nothing held it
	if !other.Hold() {    // now it is held
		t.Error("the other does not hold")
	}
	write()
	next(other, 100, 20, 60)
	slow.Stop()
	next(other, 100, 20, 80)
	other.Stop()
	if other.Hold() {
		t.Error("held after its end")
	}
}

// TestHoldIsReleasedWithoutRoom checks that holds are released if there is no room for them.
func TestHoldIsReleasedWithoutRoom(t *testing.T) {
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{MaxEvents: 800}, 0)
	r := watch(t, m, 0, nil)
	r.Coalesce(true)
	write := func() {
		for i := range 300 {
			m.Append(f.set(state{fmt.Sprintf("ns/%d", i), "", ""}))
		}
	}
	write()
	drain(t, r)
	write()
	if ds, _, err := r.Next(nil, 10); len(ds) != 10 || err != nil || !r.Hold() {
		t.Fatal(len(ds), err)
	}
	for range 10 {
		write()
	}
	if r.MustReadNow() {
		t.Error("must read now, although there is room without the hold")
	}
	seen := map[string]bool{}
	for range 2 {
		ds, _ := drain(t, r)
		for _, d := range ds {
			seen[d.Object.Key] = true
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d objects", len(seen))
	}
}
