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
	// holds are what watchers hold, held the places of those that there are.
	holds [maxHolds]hold
	held  holdSet
	// frames are those of the events that the ring has dropped.
	frames *frameBudget
}

// entry is an event in the log. What was dropped has no event.
type entry struct {
	seq, rv uint64
	event   *Event
	cost    int64
	// superseded is set of what is not plain, light when the event is the log's own.
	superseded, light bool
	// held are the holds for which it is kept since it was superseded.
	held holdSet
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
// unread for long; Hurried tells it not to. holds says that it may stop in the midst of them, see
// Hold. It is called before the first Next.
func (w *Watcher) Coalesce(holds bool) {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err != nil {
		return
	}
	if m.mu.log == nil {
		m.mu.log = &eventLog{
			start: m.mu.ring.head, readers: map[*Watcher]struct{}{}, dueLen: tidyAtLeast, dueBytes: m.options.MaxBytes / 8,
			frames: &m.calmFrames,
		}
	}
	w.coalesces, w.holds = true, holds
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
	l := m.mu.log
	l.leave(w)
	delete(l.readers, w)
	if len(l.readers) == 0 {
		l.clear()
		m.mu.log = nil
	}
}

// clear drops everything.
func (l *eventLog) clear() {
	for i := range l.holds {
		l.release(i)
	}
	for i := range l.entries {
		if l.entries[i].event != nil {
			l.drop(&l.entries[i])
		}
	}
	l.entries = nil
}

// drop takes the event of an entry away.
func (l *eventLog) drop(e *entry) {
	if e.light {
		e.event.frames.retire()
	}
	l.bytes -= e.cost
	e.event, e.cost = nil, 0
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
		e := &l.entries[i]
		if e.event == nil || e.event.Object != prev {
			continue
		}
		plain, held := e.event.isPlain(), l.holding(e.seq)
		if plain && held == 0 {
			l.drop(e)
			return
		}
		// Nobody else keeps the state that was replaced, once the one that did so is replaced, too.
		n := int64(len(prev.Raw))
		e.cost += n
		l.bytes += n
		e.superseded, e.held = !plain, held
		l.keep(held, 1)
		return
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
	light.frames.budget = l.frames
	e := &l.entries[i]
	before := e.cost
	e.event, e.cost, e.light = light, entryOverhead, true
	if e.held != 0 {
		e.cost += int64(len(light.Object.Raw))
	}
	l.bytes += e.cost - before
}

// copy copies events from the cursor of w on into dst, up to its horizon, but all of the last version,
// which is that of the event before if last is not 0. Bit i of superseded is set for those of which dst[i]
// is one; then comes where to go on, at least the horizon at the end; and torn tells that the event
// there has the version of the last one copied.
func (l *eventLog) copy(dst []*Event, w *Watcher, last uint64) (n int, superseded, _ uint64, torn bool) {
	i, next := l.after(w.cursor), max(w.cursor, w.horizon)
	for ; i < len(l.entries) && n < len(dst); i++ {
		e := &l.entries[i]
		if !e.isFor(w) {
			continue
		}
		if e.seq >= w.horizon && e.rv != last {
			return n, superseded, next, false
		}
		if e.superseded && e.held&w.held == 0 {
			superseded |= 1 << n
		}
		dst[n] = e.event
		n++
		last, next = e.rv, max(next, e.seq+1)
	}
	for i < len(l.entries) && !l.entries[i].isFor(w) {
		i++
	}
	if i == len(l.entries) {
		return n, superseded, next, false
	}
	return n, superseded, l.entries[i].seq, n > 0 && l.entries[i].rv == last
}

// isFor reports whether there is something in the entry for w: also what was superseded, if it is held
// for w, or was told of as something else than a modification.
func (e *entry) isFor(w *Watcher) bool {
	return e.event != nil && (e.held == 0 || e.superseded || e.held&w.held != 0)
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
	for l.held != 0 && (len(l.entries) > most/2 || l.bytes > mostBytes/2) {
		l.release(l.stillest())
		l.forget(&m.mu.ring)
	}
	switch n := len(l.entries); {
	case n > most || l.bytes > mostBytes:
		l.clear()
		l.start = m.mu.ring.head
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
			l.keep(e.held, -1)
			l.drop(e)
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
