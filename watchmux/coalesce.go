package watchmux

import (
	"slices"
	"sort"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// eventLog is what coalescing watchers read in the place of the ring: the events since
// start without the modifications that a later event of the same object supersedes. So
// it holds an event for each object that was modified, however often that was, and a
// watcher can wait for long: the ring, which holds every event with the state that it
// replaced, reaches back seconds where many events come.
//
// Only modifications are superseded. Whoever is told that an object is there, or gone, is
// told each time, also where that is because the object has entered or left a selection.
// A modification of an object whose labels and selectable fields stay as they are is that
// for everybody, or nothing; it is dropped when it is superseded. Another is an addition
// or a deletion for some: it stays, and is passed over by those for whom it is neither.
//
// There is a log while there are coalescing watchers; without, it costs nothing.
// Guarded by Mux.mu.
type eventLog struct {
	entries []entry // seq rises, rv never falls
	start   uint64
	bytes   int64
	readers map[*Watcher]struct{}
	// It is tidied when it has so many entries, or so many bytes.
	dueLen   int
	dueBytes int64
}

// entry is an event in the log. What was dropped has no event.
type entry struct {
	seq, rv    uint64
	event      *Event
	cost       int64
	superseded bool
}

const (
	// entryOverhead is what an entry takes that the ring has no part in any more.
	entryOverhead = 256
	// sameVersion is among how many events of one version the one of an object is looked
	// for. Changes of one transaction are deletions, which nothing supersedes.
	sameVersion = 64
	// tidyAtLeast is how many entries come between two looks at the whole log.
	tidyAtLeast = 256
)

// Coalesce makes the watcher a coalescing one: of the modifications of an object that it
// has not read yet it gets the last only, and none before a deletion. It may leave events
// unread for long; Hurried tells it not to. It is called before the first Next.
func (w *Watcher) Coalesce() {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err != nil {
		return
	}
	if m.mu.log == nil {
		m.mu.log = &eventLog{start: m.mu.ring.head, readers: map[*Watcher]struct{}{}, dueLen: tidyAtLeast, dueBytes: m.options.MaxBytes / 8}
	}
	w.coalesces = true
	m.mu.log.readers[w] = struct{}{}
}

// Behind reports whether a coalescing watcher, of which Next has returned fewer than max, has
// left events that came since it began to read: it is not armed, and has not seen everything up to
// any version that it has read of. Where events come faster than they can be read it would not come
// to an end.
func (w *Watcher) Behind() bool { return w.behind.Load() }

// Hurried reports whether a coalescing watcher must read now: there is no room to keep
// more for it, or the Mux was closed. notify was called then.
func (w *Watcher) Hurried() bool { return w.hurried.Load() }

// quit takes a coalescing watcher out of the log. m.mu is held.
func (m *Mux) quit(w *Watcher) {
	delete(m.mu.log.readers, w)
	if len(m.mu.log.readers) == 0 {
		m.mu.log = nil
	}
}

// add enters an event. m.mu is held.
func (l *eventLog) add(e *Event) {
	if e.Prev != nil {
		l.supersede(e.Prev)
	}
	cost := e.cost()
	l.entries = append(l.entries, entry{seq: e.seq, rv: e.RV, event: e, cost: cost})
	l.bytes += cost
}

// supersede says that the state that an event of the log has brought was replaced.
func (l *eventLog) supersede(prev *object.Object) {
	first := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].rv >= prev.RV })
	for i := first; i < min(len(l.entries), first+sameVersion) && l.entries[i].rv == prev.RV; i++ {
		switch e := &l.entries[i]; {
		case e.event == nil || e.event.Object != prev:
		case e.event.isPlain():
			l.bytes -= e.cost
			e.event, e.cost = nil, 0
			return
		default:
			// Nobody else keeps the state that was replaced, once the one that did so is replaced, too.
			n := int64(len(prev.Raw))
			e.superseded = true
			e.cost += n
			l.bytes += n
			return
		}
	}
}

// isPlain reports whether the event is a modification to all who are told of it.
func (e *Event) isPlain() bool {
	if e.Type != api.Modified || e.Prev == nil {
		return false
	}
	before, after := e.Prev, e.Object
	return before.UID == after.UID && slices.Equal(before.Labels, after.Labels) && slices.Equal(before.Fields, after.Fields)
}

// after is the first entry from seq on.
func (l *eventLog) after(seq uint64) int {
	return sort.Search(len(l.entries), func(i int) bool { return l.entries[i].seq >= seq })
}

// outlive is called when the ring has dropped an event. The log keeps no state for its sake
// that everybody else has forgotten: of a plain one the state before is not needed.
func (l *eventLog) outlive(dropped *Event) {
	if dropped.seq < l.start {
		return
	}
	i := l.after(dropped.seq)
	if i == len(l.entries) || l.entries[i].event != dropped || !dropped.isPlain() {
		return
	}
	light := &Event{
		Type: dropped.Type, shares: dropped.shares, seq: dropped.seq, RV: dropped.RV,
		Object: dropped.Object, Prev: dropped.Object, Appended: dropped.Appended,
	}
	light.frames.retire()
	e := &l.entries[i]
	l.bytes += entryOverhead - e.cost
	e.event, e.cost = light, entryOverhead
}

// copy copies events from seq on into dst, up to limit, but all of the last version. Bit i of
// superseded is set for those of which dst[i] is one; then comes where to go on, at least limit at the end;
// and torn tells that the event there has the version of the last one copied.
func (l *eventLog) copy(dst []*Event, seq, limit uint64) (n int, superseded, _ uint64, torn bool) {
	i, next := l.after(seq), max(seq, limit)
	for ; i < len(l.entries) && n < len(dst); i++ {
		e := &l.entries[i]
		if e.event == nil {
			continue
		}
		if e.seq >= limit && (n == 0 || e.rv != dst[n-1].RV) {
			return n, superseded, next, false
		}
		if e.superseded {
			superseded |= 1 << n
		}
		dst[n] = e.event
		n++
		next = max(next, e.seq+1)
	}
	for i < len(l.entries) && l.entries[i].event == nil {
		i++
	}
	if i == len(l.entries) {
		return n, superseded, next, false
	}
	return n, superseded, l.entries[i].seq, n > 0 && l.entries[i].rv == dst[n-1].RV
}

// tidyLog drops what all have read, when the log has grown, and keeps it within the bounds of
// the ring: watchers that let events wait are told not to from half of them on, and read from the
// ring, or have fallen off it, when that does not help. It appends those to woken. m.mu is
// held.
func (m *Mux) tidyLog(woken []*Watcher) []*Watcher {
	l := m.mu.log
	if l == nil || len(l.entries) < l.dueLen && l.bytes < l.dueBytes {
		return woken
	}
	l.forget(&m.mu.ring)
	most, mostBytes := m.options.MaxEvents, m.options.MaxBytes
	switch n := len(l.entries); {
	case n > most || l.bytes > mostBytes:
		l.entries, l.bytes, l.start = nil, 0, m.mu.ring.head
		fallthrough
	case n > most/2 || l.bytes > mostBytes/2:
		for w := range l.readers {
			if !w.armed {
				woken = w.hurry(woken)
			}
		}
	}
	l.dueLen = len(l.entries) + min(len(l.entries)+tidyAtLeast, most/8+1)
	l.dueBytes = l.bytes + mostBytes/8
	return woken
}

// hurry appends w to those that are to be notified, if it was not told yet.
func (w *Watcher) hurry(woken []*Watcher) []*Watcher {
	if w.hurried.Swap(true) {
		return woken
	}
	return append(woken, w)
}

// forget drops the entries that all have read, and what is left of those that were dropped.
// A reader whose next event neither the log nor the ring has any more gets none of these.
func (l *eventLog) forget(r *ring) {
	from := r.head
	for w := range l.readers {
		if !w.armed && (w.cursor >= l.start || w.cursor >= r.tail) {
			from = min(from, max(w.reading, l.start))
		}
	}
	kept := l.entries[:0]
	for i := range l.entries {
		switch e := &l.entries[i]; {
		case e.event == nil:
		case e.seq < from:
			l.bytes -= e.cost
		default:
			kept = append(kept, *e)
		}
	}
	clear(l.entries[len(kept):])
	l.entries, l.start = kept, from
	if cap(kept) > 4*len(kept)+4*tidyAtLeast {
		l.entries = slices.Clone(kept)
	}
}
