package watchmux

import (
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// logBench writes objects of a given size to a Mux.
type logBench struct {
	*Mux
	size int
	rv   uint64
	last map[string]*object.Object
}

func newLogBench(o Options, size int) *logBench {
	return &logBench{Mux: New(o), size: size, last: map[string]*object.Object{}}
}

func (b *logBench) write(key string) {
	b.rv++
	o := &object.Object{Key: key, UID: key, RV: b.rv}
	o.Raw = make([]byte, b.size)
	e := &Event{Type: api.Added, RV: b.rv, Prev: b.last[key], Object: o}
	if e.Prev != nil {
		e.Type = api.Modified
	}
	b.last[key] = o
	b.Append(e)
}

// coalescing returns a coalescing watcher that has read everything.
func (b *logBench) coalescing(t *testing.T) *Watcher {
	t.Helper()
	w, err := b.Watch(b.rv, nil, func() {})
	if err != nil {
		t.Fatal(err)
	}
	w.Coalesce(false)
	if ds, _, err := w.Next(nil, 1); len(ds) > 0 || err != nil {
		t.Fatal(ds, err)
	}
	return w
}

// TestLogKeepsUnreadEvents checks that events for which a watcher had no room are kept, although
// the ring has dropped them.
func TestLogKeepsUnreadEvents(t *testing.T) {
	b := newLogBench(Options{MaxEvents: 400}, 10)
	w := b.coalescing(t)
	for i := range 20 {
		b.write(fmt.Sprint("n/", i))
	}
	var chunk [chunkEvents]*Event
	if n, _, more, _, _, err := w.take(chunk[:], 4, 0); n != 4 || !more || err != nil {
		t.Fatal(n, more, err)
	}
	for range 2000 {
		b.write("n/19")
	}
	ds, rv, err := w.Next(nil, 100)
	for !w.armed && err == nil {
		ds, rv, err = w.Next(ds, 100)
	}
	if len(ds) != 17 || rv != b.rv || err != nil {
		t.Errorf("%d events up to %d, %v", len(ds), rv, err)
	}
}

// TestLogCountsStatesThatItAloneHolds checks that replaced states that nothing else retains count,
// also those of additions.
func TestLogCountsStatesThatItAloneHolds(t *testing.T) {
	const most = 1 << 20
	b := newLogBench(Options{MaxBytes: most}, 10_000)
	b.coalescing(t) // reads no more
	for i := range 1000 {
		for range 4 {
			b.write(fmt.Sprint("n/", i))
		}
		retained := map[*object.Object]bool{}
		for _, e := range b.mu.log.entries {
			if e.event != nil {
				retained[e.event.Object] = true
				retained[e.event.Prev] = true
			}
		}
		bytes := 0
		for o := range retained {
			if o != nil && o != b.last[o.Key] {
				bytes += len(o.Raw)
			}
		}
		if bytes > most*5/4 {
			t.Fatalf("%d bytes after %d objects, counted as %d", bytes, i, b.mu.log.bytes)
		}
	}
}

// TestLostWatchersDoNotAffectTheLog checks that a watcher that has fallen off the log and the ring
// neither retains events nor makes others read early.
func TestLostWatchersDoNotAffectTheLog(t *testing.T) {
	b := newLogBench(Options{MaxEvents: 800}, 10)
	lost, quick := b.coalescing(t), b.coalescing(t)
	flushed := 0
	for i := range 10_000 {
		b.write(fmt.Sprint("n/", i))
		if i%100 > 0 {
			continue
		}
		if quick.MustReadNow() && i > 2000 {
			flushed++
		}
		for armed := false; !armed; armed = quick.armed {
			if _, _, err := quick.Next(nil, 256); err != nil {
				t.Fatal(err)
			}
		}
	}
	if flushed > 0 {
		t.Errorf("%d early reads", flushed)
	}
	if _, _, err := lost.Next(nil, 1); err == nil {
		t.Error("the other watcher has lost no events")
	}
}

// TestLogDoesNotSplitVersions checks that the changes of one version are delivered together,
// including those that arrived while the watcher read, wherever its chunks end.
func TestLogDoesNotSplitVersions(t *testing.T) {
	b := newLogBench(Options{}, 10)
	w := b.coalescing(t)
	const before, shared = chunkEvents - 3, 4
	for i := range before {
		b.write(fmt.Sprint("n/", i))
	}
	together := func(from, n int) {
		for i := range n {
			if from+i > 0 {
				b.rv--
			}
			b.write(fmt.Sprint("shared/", from+i))
		}
	}
	together(0, shared)
	if ds, _, err := w.Next(nil, 1); len(ds) != 1 || err != nil {
		t.Fatal(len(ds), err)
	}
	together(shared, 3)
	b.write("n/later")
	ds, _, err := w.Next(nil, 1000)
	if len(ds) != before-1+shared+3 || err != nil {
		t.Errorf("%d events, %v", len(ds), err)
	}
}
