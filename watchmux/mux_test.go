package watchmux_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errGone is a reason to close a Mux.
var errGone = errors.New("history is gone")

// schema has one selectable field besides name and namespace.
func schema() *object.Schema { return object.CustomSchema([]string{".spec.node"}) }

// state is a version of an object in namespace/name. "" is an absent label or field.
type state struct {
	key, label, node string
}

func build(t testing.TB, s *object.Schema, st state, rv uint64) *object.Object {
	t.Helper()
	ns, name := "", st.key
	for i := range st.key {
		if st.key[i] == '/' {
			ns, name = st.key[:i], st.key[i+1:]
		}
	}
	l := ""
	if st.label != "" {
		l = fmt.Sprintf(`"l":%q`, st.label)
	}
	raw := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"resourceVersion":"%d","labels":{%s}},"spec":{"node":%q}}`, ns, name, rv, l, st.node)
	o, err := s.Decode(api.JSON, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func filter(t testing.TB, ns, labelSel, fieldSel string) *object.Filter {
	t.Helper()
	l, err := labels.Parse(labelSel)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := fields.ParseSelector(fieldSel)
	if err != nil {
		t.Fatal(err)
	}
	f, err := object.NewFilter(schema(), ns, "", l, fs)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// feeder makes events with ascending versions from states.
type feeder struct {
	t      testing.TB
	schema *object.Schema
	rv     uint64
	last   map[string]*object.Object
}

func newFeeder(t testing.TB, rv uint64) *feeder {
	return &feeder{t: t, schema: schema(), rv: rv, last: map[string]*object.Object{}}
}

// set returns the event of writing st.
func (f *feeder) set(st state) *watchmux.Event {
	f.rv++
	o := build(f.t, f.schema, st, f.rv)
	e := &watchmux.Event{Type: api.Added, RV: f.rv, Object: o, Prev: f.last[st.key]}
	if e.Prev != nil {
		e.Type = api.Modified
	}
	f.last[st.key] = o
	return e
}

// remove returns the event of deleting key.
func (f *feeder) remove(key string) *watchmux.Event {
	f.rv++
	prev := f.last[key]
	o, err := prev.AtRV(api.JSON, f.rv)
	if err != nil {
		f.t.Fatal(err)
	}
	delete(f.last, key)
	return &watchmux.Event{Type: api.Deleted, RV: f.rv, Object: o, Prev: prev}
}

func start(t testing.TB, o watchmux.Options, rv uint64) *watchmux.Mux {
	t.Helper()
	m := watchmux.New(o)
	m.Start(rv)
	return m
}

// reader counts notifications.
type reader struct {
	*watchmux.Watcher
	notified int
}

func watch(t testing.TB, m *watchmux.Mux, from uint64, f *object.Filter) *reader {
	t.Helper()
	r := &reader{}
	w, err := m.Watch(from, f, func() { r.notified++ })
	if err != nil {
		t.Fatal(err)
	}
	r.Watcher = w
	return r
}

func drain(t testing.TB, r *reader) (deliveries []watchmux.Delivery, rv uint64) {
	t.Helper()
	deliveries, rv, err := r.Next(nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return deliveries, rv
}

// show formats deliveries like the test tables.
func show(ds []watchmux.Delivery) string {
	s := ""
	for _, d := range ds {
		s += fmt.Sprintf("%s %s@%d:%d ", d.Type, d.Object.Key, d.RV, d.Object.RV)
	}
	return s
}

// TestTransitions checks the deliveries of an object that enters and leaves a selector. Each has
// the version of the change and that of the state sent.
func TestTransitions(t *testing.T) {
	in, in2, out := state{"n/a", "x", "node1"}, state{"n/a", "x", "node2"}, state{"n/a", "y", "node1"}
	for _, c := range []struct {
		name   string
		states []state // a zero state deletes
		want   string  // for l=x
	}{
		{"stays in", []state{in, in2}, "ADDED n/a@11:11 MODIFIED n/a@12:12 "},
		{"stays out", []state{out, out, {}}, ""},
		{"enters", []state{out, in}, "ADDED n/a@12:12 "},
		{"leaves", []state{in, in2, out}, "ADDED n/a@11:11 MODIFIED n/a@12:12 DELETED n/a@13:12 "},
		{"leaves and enters", []state{in, out, in2}, "ADDED n/a@11:11 DELETED n/a@12:11 ADDED n/a@13:13 "},
		{"deleted inside", []state{in, {}}, "ADDED n/a@11:11 DELETED n/a@12:12 "},
		{"deleted outside", []state{in, out, {}}, "ADDED n/a@11:11 DELETED n/a@12:11 "},
		{"loses its label", []state{in, {key: "n/a"}}, "ADDED n/a@11:11 DELETED n/a@12:11 "},
		{"made again", []state{in, {}, in}, "ADDED n/a@11:11 DELETED n/a@12:12 ADDED n/a@13:13 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, sel := range []struct{ ns, labels, fields string }{
				{"", "l=x", ""}, {"n", "l=x", ""}, {"", "l in (x,z)", ""}, {"", "l notin (y),l", ""}, {"", "l=x", "metadata.name=a"},
				{"n", "l=x", "metadata.name=a"}, {"", "l=x", "spec.node!=node9"},
			} {
				m := start(t, watchmux.Options{}, 10)
				f := filter(t, sel.ns, sel.labels, sel.fields)
				live, late := watch(t, m, 10, f), (*reader)(nil)
				if ds, rv := drain(t, live); len(ds) != 0 || rv != 10 {
					t.Fatalf("%v at %d before the first event", ds, rv)
				}
				feed := newFeeder(t, 10)
				got := ""
				for _, st := range c.states {
					if st.key == "" {
						m.Append(feed.remove("n/a"))
					} else {
						m.Append(feed.set(st))
					}
					woken := live.notified > 0
					live.notified = 0
					ds, rv := drain(t, live)
					if rv != feed.rv || woken != (len(ds) > 0) {
						t.Errorf("%+v: woken %v, got %q up to %d, want %d", sel, woken, show(ds), rv, feed.rv)
					}
					got += show(ds)
				}
				if got != c.want {
					t.Errorf("%+v: live watcher got %q, want %q", sel, got, c.want)
				}
				late = watch(t, m, 10, f)
				if ds, _ := drain(t, late); show(ds) != c.want {
					t.Errorf("%+v: late watcher got %q, want %q", sel, show(ds), c.want)
				}
			}
		})
	}
}

// TestNotify checks that an idle watcher is notified exactly once when it gets something to read,
// and not of events that do not concern it.
func TestNotify(t *testing.T) {
	m := start(t, watchmux.Options{}, 0)
	feed := newFeeder(t, 0)
	r := watch(t, m, 0, filter(t, "", "l=x", ""))
	m.Append(feed.set(state{key: "n/a", label: "x"}))
	expect := func(n int, when string) {
		t.Helper()
		if r.notified != n {
			t.Errorf("%s: notified %d times, want %d", when, r.notified, n)
		}
	}
	expect(0, "before the first Next")
	drain(t, r)
	m.Append(feed.set(state{key: "n/b", label: "y"}), feed.set(state{key: "n/c"}))
	expect(0, "events of others")
	m.Append(feed.set(state{key: "n/a", label: "x"}), feed.set(state{key: "n/d", label: "x"}))
	expect(1, "two at once")
	m.Append(feed.set(state{key: "n/a", label: "x"}))
	expect(1, "before they were read")
	if ds, rv, err := r.Next(nil, 2); len(ds) != 2 || rv != feed.rv-1 || err != nil {
		t.Fatalf("%s, %d, %v", show(ds), rv, err)
	}
	m.Append(feed.set(state{key: "n/a", label: "x"}))
	expect(1, "while there was more")
	if ds, _ := drain(t, r); len(ds) != 2 {
		t.Fatal(show(ds))
	}
	m.Progress(100)
	expect(1, "progress")
	if ds, rv := drain(t, r); len(ds) != 0 || rv != 100 {
		t.Fatalf("%s, %d", show(ds), rv)
	}
	feed.rv = 100
	m.Append(feed.set(state{key: "n/a", label: "y"}))
	expect(2, "an object left")
	r.Stop()
	r.Stop()
	m.Append(feed.set(state{key: "n/a", label: "x"}))
	expect(2, "after Stop")
	if _, _, err := r.Next(nil, 1); !errors.Is(err, watchmux.ErrStopped) {
		t.Errorf("Next after Stop: %v", err)
	}
	if s := m.Stats(); s.Watchers != 0 || s.Ended.Stopped != 1 || s.Deliveries != 5 {
		t.Errorf("stats %+v", s)
	}
}

// TestExactFill checks that a full portion leaves the watcher unarmed although nothing remains, and
// that the following Next arms it.
func TestExactFill(t *testing.T) {
	m := start(t, watchmux.Options{}, 0)
	feed := newFeeder(t, 0)
	r := watch(t, m, 0, nil)
	m.Append(feed.set(state{key: "a"}), feed.set(state{key: "a"}))
	if ds, rv, err := r.Next(nil, 2); len(ds) != 2 || rv != 2 || err != nil {
		t.Fatalf("%s, %d, %v", show(ds), rv, err)
	}
	m.Append(feed.set(state{key: "a"}))
	if r.notified != 0 {
		t.Error("notified while Next was due")
	}
	if ds, rv := drain(t, r); len(ds) != 1 || rv != 3 {
		t.Fatalf("%s, %d", show(ds), rv)
	}
	m.Append(feed.set(state{key: "a"}))
	if r.notified != 1 {
		t.Error("not notified")
	}
}

// TestDeletedWithOtherLabels checks that the state before a deletion decides whom it concerns, and
// that the state that came with it is sent.
func TestDeletedWithOtherLabels(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"x", "y", "DELETED n/a@12:12 "}, {"y", "x", ""},
	} {
		m := start(t, watchmux.Options{}, 11)
		r := watch(t, m, 11, filter(t, "", "l=x", ""))
		drain(t, r)
		s := schema()
		m.Append(&watchmux.Event{
			Type: api.Deleted, RV: 12,
			Prev:   build(t, s, state{key: "n/a", label: c.before}, 11),
			Object: build(t, s, state{key: "n/a", label: c.after}, 12),
		})
		if ds, _ := drain(t, r); show(ds) != c.want || (r.notified == 1) != (c.want != "") {
			t.Errorf("%+v: %q, notified %d", c, show(ds), r.notified)
		}
	}
}

// TestFuture checks that a watch above the present is silent until its version is passed, and never
// reports a version below its start.
func TestFuture(t *testing.T) {
	m := start(t, watchmux.Options{}, 5)
	feed := newFeeder(t, 5)
	r := watch(t, m, 8, nil)
	if ds, rv := drain(t, r); len(ds) != 0 || rv != 8 {
		t.Fatalf("%s, %d", show(ds), rv)
	}
	for range 3 { // 6, 7, 8
		m.Append(feed.set(state{key: "a"}))
	}
	if r.notified != 0 {
		t.Error("notified of events at or below the start")
	}
	m.Append(feed.set(state{key: "b"}))
	if ds, rv := drain(t, r); show(ds) != "ADDED b@9:9 " || rv != 9 {
		t.Errorf("%s, %d", show(ds), rv)
	}
}

// TestSkip checks that watches cannot start in a gap, and that those from before it receive all
// events.
func TestSkip(t *testing.T) {
	m := watchmux.New(watchmux.Options{MaxEvents: 3})
	m.Start(10)
	s := schema()
	event := func(key string, rv uint64) *watchmux.Event {
		return &watchmux.Event{Type: api.Added, RV: rv, Object: build(t, s, state{key: key}, rv)}
	}
	notified := map[uint64]int{}
	watchers := map[uint64]*watchmux.Watcher{}
	for _, from := range []uint64{10, 15, 16, 20, 25} {
		w, err := m.Watch(from, nil, func() { notified[from]++ })
		if err != nil {
			t.Fatal(err)
		}
		if from != 16 { // not armed: it reads later
			if _, _, err := w.Next(nil, 10); err != nil {
				t.Fatal(err)
			}
		}
		watchers[from] = w
	}
	m.Skip(20)
	m.Append(event("a/1", 11), event("a/2", 18))
	m.Progress(20)
	for from, want := range map[uint64]struct{ notified, events int }{10: {1, 2}, 20: {0, 0}, 25: {0, 0}} {
		events, rv, err := watchers[from].Next(nil, 10)
		if err != nil || len(events) != want.events || rv != max(20, from) {
			t.Errorf("from %d: %d events up to %d, %v", from, len(events), rv, err)
		}
		if want.events > 0 && notified[from] != want.notified {
			t.Errorf("from %d: notified %d times", from, notified[from])
		}
	}
	for from, times := range map[uint64]int{15: 1, 16: 0} {
		var expired *watchmux.ExpiredError
		if _, _, err := watchers[from].Next(nil, 10); !errors.As(err, &expired) || expired.Oldest != 20 || notified[from] != times {
			t.Errorf("from %d: notified %d times, %v", from, notified[from], err)
		}
	}
	for from, ok := range map[uint64]bool{10: true, 11: false, 19: false, 20: true, 30: true} {
		w, err := m.Watch(from, nil, func() {})
		if (err == nil) != ok || err != nil && !errors.Is(err, watchmux.ErrExpired) {
			t.Errorf("watch from %d: %v", from, err)
		}
		if err == nil {
			w.Stop()
		}
	}
	if got := m.Stats(); got.Watchers != 3 || got.Ended.Expired != 2 {
		t.Errorf("stats: %+v", got)
	}
	// The gap is forgotten with its events, and nothing is skipped backwards.
	m.Append(event("b/1", 21), event("b/2", 22), event("b/3", 23), event("b/4", 24))
	m.Skip(24)
	m.Skip(25)
	if w, err := m.Watch(24, nil, func() {}); err != nil {
		t.Error(err)
	} else {
		w.Stop()
	}
}

// TestBounds checks that events leave by count, bytes and age, and that watches that need them get
// ErrExpired with kube-apiserver's message.
func TestBounds(t *testing.T) {
	now := int64(0)
	clock := func() int64 { return now }
	for name, o := range map[string]watchmux.Options{
		"count": {MaxEvents: 10, Clock: clock},
		"bytes": {MaxBytes: 10 * (1024 + 99), Clock: clock}, // 10 times the overhead and the replaced state
		"age":   {MaxAge: 10 * time.Second, Clock: clock},
	} {
		t.Run(name, func(t *testing.T) {
			now = 0
			m := start(t, o, 1000)
			feed := newFeeder(t, 1000)
			slow, idle := watch(t, m, 1000, nil), watch(t, m, 1000, filter(t, "", "l=none", ""))
			drain(t, idle)
			m.Append(feed.set(state{key: "n/a"}))
			for range 30 {
				now += int64(time.Second)
				m.Append(feed.set(state{key: "n/a"}))
			}
			s := m.Stats()
			if s.Events < 9 || s.Events > 11 || s.Oldest != feed.rv-uint64(s.Events) || m.Oldest() != s.Oldest || s.OldestAge != int64(s.Events-1)*int64(time.Second) {
				t.Errorf("stats %+v at %d", s, feed.rv)
			}
			if s.Lagging != 1 || s.Pending != 1 || s.Watchers != 2 {
				t.Errorf("stats %+v", s)
			}
			_, _, err := slow.Next(nil, 10)
			var expired *watchmux.ExpiredError
			if !errors.As(err, &expired) || !errors.Is(err, watchmux.ErrExpired) || expired.Oldest != s.Oldest ||
				err.Error() != fmt.Sprintf("too old resource version: 1000 (%d)", s.Oldest) {
				t.Errorf("slow watcher got %v", err)
			}
			if _, _, again := slow.Next(nil, 10); again != err {
				t.Errorf("then %v", again)
			}
			if ds, rv := drain(t, idle); len(ds) != 0 || rv != feed.rv {
				t.Errorf("idle watcher got %s at %d", show(ds), rv)
			}
			if _, err := m.Watch(s.Oldest-1, nil, func() {}); !errors.Is(err, watchmux.ErrExpired) {
				t.Errorf("watch from before the history: %v", err)
			}
			if ds, _ := drain(t, watch(t, m, s.Oldest, nil)); len(ds) != s.Events {
				t.Errorf("%d of %d events from the oldest", len(ds), s.Events)
			}
			if s := m.Stats(); s.Ended.Expired != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestClose checks that watchers receive what came before, then the reason.
func TestClose(t *testing.T) {
	m := start(t, watchmux.Options{}, 0)
	feed := newFeeder(t, 0)
	idle, behind := watch(t, m, 0, filter(t, "", "l=x", "")), watch(t, m, 0, nil)
	drain(t, idle)
	m.Append(feed.set(state{key: "a"}))
	m.Close(errGone)
	m.Close(watchmux.ErrStopped)
	m.Append(feed.set(state{key: "b"}))
	if idle.notified != 1 {
		t.Error("idle watcher not woken")
	}
	if _, _, err := idle.Next(nil, 5); !errors.Is(err, errGone) {
		t.Errorf("idle: %v", err)
	}
	ds, _, err := behind.Next(nil, 5)
	if show(ds) != "ADDED a@1:1 " {
		t.Errorf("behind: %s, %v", show(ds), err)
	}
	if err == nil {
		_, _, err = behind.Next(nil, 5)
	}
	if !errors.Is(err, errGone) {
		t.Errorf("behind: %v", err)
	}
	if _, err := m.Watch(1, nil, func() {}); !errors.Is(err, errGone) {
		t.Errorf("new watch: %v", err)
	}
	if s := m.Stats(); s.Watchers != 0 || s.Ended.Closed != 2 {
		t.Errorf("stats %+v", s)
	}
}

// TestSince checks which events Since returns.
func TestSince(t *testing.T) {
	m := start(t, watchmux.Options{MaxEvents: 300}, 0)
	feed := newFeeder(t, 0)
	if seen, err := m.Since(0); len(seen) != 0 || err != nil {
		t.Errorf("empty: %v, %v", seen, err)
	}
	for range 400 {
		m.Append(feed.set(state{key: "a"}))
	}
	for _, rv := range []uint64{100, 101, 150, 335, 336, 337, 399, 400, 500} {
		seen, err := m.Since(rv)
		if err != nil || len(seen) != 400-int(min(rv, 400)) {
			t.Errorf("since %d: %d events, %v", rv, len(seen), err)
		}
		for i, got := range seen {
			if got.RV != rv+1+uint64(i) {
				t.Fatalf("since %d: event %d is %d", rv, i, got.RV)
			}
		}
	}
	if _, err := m.Since(99); !errors.Is(err, watchmux.ErrExpired) {
		t.Errorf("too old: %v", err)
	}
}

// TestStale checks that events of versions that the ring has passed are dropped and counted, but
// not another event of its current version.
func TestStale(t *testing.T) {
	m := start(t, watchmux.Options{}, 10)
	feed := newFeeder(t, 8)
	r := watch(t, m, 10, nil)
	m.Append(feed.set(state{key: "a"}), feed.set(state{key: "a"}), feed.set(state{key: "a"}))
	m.Progress(5)
	if ds, rv := drain(t, r); len(ds) != 2 || rv != 11 || m.RV() != 11 {
		t.Errorf("%s, %d, %d", show(ds), rv, m.RV())
	}
	if s := m.Stats(); s.Stale != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestClock checks that events age by a clock independent of the time of day.
func TestClock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := start(t, watchmux.Options{}, 0)
		time.Sleep(time.Hour)
		e := newFeeder(t, 0).set(state{key: "a"})
		m.Append(e)
		time.Sleep(5 * time.Second)
		if e.Appended != int64(time.Hour) || m.Age(e) != int64(5*time.Second) {
			t.Errorf("appended at %d, %d old", e.Appended, m.Age(e))
		}
	})
}

// TestFutureShared checks a client that listed at a version with several changes before the ring
// reached it: it has the first change and may lack the others.
func TestFutureShared(t *testing.T) {
	for name, f := range map[string]*object.Filter{"all": nil, "selected": filter(t, "", "l=x", "")} {
		t.Run(name, func(t *testing.T) {
			m := start(t, watchmux.Options{}, 5)
			feed := newFeeder(t, 5)
			m.Append(feed.set(state{key: "a", label: "x"}), feed.set(state{key: "b", label: "x"})) // 6, 7
			armed, pending := watch(t, m, 8, f), watch(t, m, 8, f)
			drain(t, armed)
			first := feed.remove("a") // 8
			m.Append(first)
			if armed.notified != 0 {
				t.Error("notified of the first change of the start's version")
			}
			feed.rv--
			m.Append(feed.remove("b"))
			for name, r := range map[string]*reader{"armed": armed, "pending": pending} {
				if ds, rv := drain(t, r); show(ds) != "DELETED b@8:8 " || rv != 8 {
					t.Errorf("%s: %s, %d", name, show(ds), rv)
				}
			}
		})
	}
}

// TestPartialHistory checks that no watch starts at a version of which the history has lost some
// changes.
func TestPartialHistory(t *testing.T) {
	m := start(t, watchmux.Options{MaxEvents: 2}, 5)
	feed := newFeeder(t, 5)
	m.Append(feed.set(state{key: "a"}))
	for _, key := range []string{"b", "c"} {
		feed.rv--
		m.Append(feed.set(state{key: key}))
	}
	if _, err := m.Watch(6, nil, func() {}); !errors.Is(err, watchmux.ErrExpired) {
		t.Errorf("a watch from the partial version: %v", err)
	}
	m.Append(feed.set(state{key: "d"}), feed.set(state{key: "e"}))
	ds, _ := drain(t, watch(t, m, 6, nil))
	if show(ds) != "ADDED d@7:7 ADDED e@8:8 " {
		t.Errorf("%s", show(ds))
	}
}
