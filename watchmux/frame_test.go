package watchmux_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

var jsonRep = api.Representation{Encoding: api.JSON}

// TestFrame checks that there is one frame for each representation, type and variant of an event,
// built once for concurrent callers.
func TestFrame(t *testing.T) {
	m := start(t, watchmux.Options{}, 0)
	feed := newFeeder(t, 0)
	m.Append(feed.set(state{key: "n/a", label: "x"}), feed.set(state{key: "n/a", label: "y"}))
	all, _ := drain(t, watch(t, m, 1, nil))
	entered, _ := drain(t, watch(t, m, 1, filter(t, "", "l=y", "")))
	left, _ := drain(t, watch(t, m, 1, filter(t, "", "l=x", "")))
	if show(all)+show(entered)+show(left) != "MODIFIED n/a@2:2 ADDED n/a@2:2 DELETED n/a@2:1 " {
		t.Fatal(show(all), show(entered), show(left))
	}
	var made atomic.Int32
	encode := func(d watchmux.Delivery) ([]byte, error) {
		made.Add(1)
		return []byte(fmt.Sprint(d.Type, d.Object.RV)), nil
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				for _, d := range []watchmux.Delivery{all[0], entered[0], left[0]} {
					want := fmt.Sprint(d.Type, d.Object.RV)
					if got, err := d.Frame(jsonRep, 0, encode); string(got) != want || err != nil {
						t.Errorf("got %s, want %s", got, want)
					}
				}
				_, _ = all[0].Frame(jsonRep, 1, encode)
				_, _ = all[0].Frame(api.Representation{Encoding: api.Protobuf}, 0, encode)
			}
		}()
	}
	wg.Wait()
	if n := made.Load(); n != 5 {
		t.Errorf("%d frames made, want 5", n)
	}
	want := int64(len("MODIFIED 2")*3 + len("ADDED 2") + len("DELETED 1"))
	if s := m.Stats(); s.FrameBytes != want {
		t.Errorf("%d bytes of frames, want %d", s.FrameBytes, want)
	}
}

// TestFrameBudget checks that the oldest frames are dropped first if there are too many, and all of
// an event when it leaves, after which they are no longer cached.
func TestFrameBudget(t *testing.T) {
	m := start(t, watchmux.Options{MaxFrameBytes: 1000, MaxEvents: 20}, 0)
	feed := newFeeder(t, 0)
	r := watch(t, m, 0, nil)
	encode := func(watchmux.Delivery) ([]byte, error) { return make([]byte, 100), nil }
	var all []watchmux.Delivery
	for range 50 {
		m.Append(feed.set(state{key: "a"}))
		ds, _ := drain(t, r)
		_, _ = ds[0].Frame(jsonRep, 0, encode)
		_, _ = ds[0].Frame(jsonRep, 1, encode)
		all = append(all, ds...)
		if s := m.Stats(); s.FrameBytes > 1000 {
			t.Fatalf("%d bytes of frames", s.FrameBytes)
		}
	}
	made := 0
	count := func(watchmux.Delivery) ([]byte, error) { made++; return nil, nil }
	for range 2 { // of a dropped event, and of one in the ring without frames
		_, _ = all[0].Frame(jsonRep, 0, count)
		_, _ = all[35].Frame(jsonRep, 0, count)
	}
	if made != 4 {
		t.Errorf("built %d frames of old events, want one per call", made)
	}
	if _, ok, _ := all[0].CachedFrame(jsonRep, 0, count); ok || made != 4 {
		t.Error("a frame was built that is not cached")
	}
	if frame, ok, err := all[49].CachedFrame(jsonRep, 0, count); !ok || len(frame) != 100 || made != 4 || err != nil {
		t.Errorf("the cached frame: %d bytes, %v, %v, %d made", len(frame), ok, err, made)
	}
	for range 30 {
		m.Append(feed.set(state{key: "b"}))
	}
	if s := m.Stats(); s.FrameBytes != 0 || s.Events != 20 {
		t.Errorf("stats %+v after all events with frames left", s)
	}
}

// TestFrameBudgetOfOneReader checks that a reader of the whole history between two events does not
// fill the memory with its frames.
func TestFrameBudgetOfOneReader(t *testing.T) {
	m := start(t, watchmux.Options{MaxFrameBytes: 1000}, 0)
	feed := newFeeder(t, 0)
	for range 100 {
		m.Append(feed.set(state{key: "a"}))
	}
	encode := func(watchmux.Delivery) ([]byte, error) { return make([]byte, 100), nil }
	ds, _ := drain(t, watch(t, m, 0, nil))
	for _, d := range ds {
		_, _ = d.Frame(jsonRep, 0, encode)
	}
	if s := m.Stats(); s.FrameBytes != 1000 {
		t.Errorf("%d bytes of frames", s.FrameBytes)
	}
	m.Append(feed.set(state{key: "a"}))
	ds, _ = drain(t, watch(t, m, feed.rv-1, nil))
	_, _ = ds[0].Frame(jsonRep, 0, encode)
	made := false
	_, _ = ds[0].Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) { made = true; return nil, nil })
	if s := m.Stats(); made || s.FrameBytes != 600 {
		t.Errorf("a new frame was not cached: %d bytes of frames", s.FrameBytes)
	}
}

// TestFrameRetiredMeanwhile checks that the budget is balanced if an event leaves while its frame
// is being built.
func TestFrameRetiredMeanwhile(t *testing.T) {
	m := start(t, watchmux.Options{MaxEvents: 1}, 0)
	feed := newFeeder(t, 0)
	m.Append(feed.set(state{key: "a"}))
	ds, _ := drain(t, watch(t, m, 0, nil))
	frame, _ := ds[0].Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) {
		m.Append(feed.set(state{key: "a"}))
		return []byte("frame"), nil
	})
	if s := m.Stats(); string(frame) != "frame" || s.FrameBytes != 0 {
		t.Errorf("%q, stats %+v", frame, s)
	}
}

// TestFrameOfEventOutsideRings checks that events outside any ring have frames too.
func TestFrameOfEventOutsideRings(t *testing.T) {
	d := watchmux.Delivery{Event: &watchmux.Event{}, Type: api.Added}
	for range 2 {
		if got, err := d.Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) { return []byte("x"), nil }); string(got) != "x" || err != nil {
			t.Errorf("got %q", got)
		}
	}
}

// TestFrameThatFails checks that an event that cannot be encoded is an error for all readers, also
// if the encoder panics.
func TestFrameThatFails(t *testing.T) {
	m := start(t, watchmux.Options{}, 0)
	feed := newFeeder(t, 0)
	m.Append(feed.set(state{key: "a"}), feed.set(state{key: "b"}))
	ds, _ := drain(t, watch(t, m, 0, nil))
	broken := errors.New("cannot print this")
	for range 3 {
		if b, err := ds[0].Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("%q, %v", b, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = ds[1].Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) { panic("bug") })
	}()
	if b, err := ds[1].Frame(jsonRep, 0, func(watchmux.Delivery) ([]byte, error) { return []byte("x"), nil }); err == nil {
		t.Errorf("after a panic %q", b)
	}
}
