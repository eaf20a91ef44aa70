package watchmux

import (
	"slices"
	"sort"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

const (
	// entryOverhead is the size of an entry that is not shared with the ring.
	entryOverhead = 256
	// sameVersion is how many events of one version are searched for that of an object. Several
	// changes of one transaction are deletions, which nothing supersedes.
	sameVersion = 64
	// tidyAtLeast is the minimum number of new entries between two scans of the log.
	tidyAtLeast = 256
)

// Coalesce makes the watcher coalesce: of several modifications of an object that it has not read,
// it gets only the last one, and none before a deletion. It may leave events unread for long,
// unless it MustReadNow. holds says that it may stop in the middle of them, see Hold. Coalesce is
// called before the first Next.
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
			frames: &m.logFrames,
		}
	}
	w.coalesces, w.holds = true, holds
	m.mu.log.readers[w] = struct{}{}
}

// Behind reports whether a coalescing watcher, after Next returned fewer than max events, has left
// events that arrived since it began to read. It is then not armed, and has not seen everything up
// to any version that it has read of. Without this bound it would not reach the end if events
// arrive faster than they can be read.
func (w *Watcher) Behind() bool { return w.behind.Load() }

// MustReadNow reports whether a coalescing watcher must read now, because there is no room to keep
// more for it, or the Mux was closed. notify has been called then.
func (w *Watcher) MustReadNow() bool { return w.mustReadNow.Load() }

// quit removes a coalescing watcher from the log. The caller holds m.mu.
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

// add adds an event. The caller holds m.mu.
func (l *eventLog) add(e *Event) {
	if e.Prev != nil {
		l.supersede(e.Prev)
	}
	cost := e.cost()
	l.entries = append(l.entries, entry{seq: e.seq, rv: e.RV, event: e, cost: cost})
	l.bytes += cost
}

// supersede records that a state was replaced, and drops or keeps the event that brought it.
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
		// Once the event that replaced it is superseded, too, only this entry keeps the state in
		// memory.
		n := int64(len(prev.Raw))
		e.cost += n
		l.bytes += n
		e.superseded, e.held = !plain, held
		return
	}
}

// isPlain reports whether the event is a modification for every watcher that it concerns.
func (e *Event) isPlain() bool {
	if e.Type != api.Modified || e.Prev == nil {
		return false
	}
	before, after := e.Prev, e.Object
	return before.UID == after.UID && slices.Equal(before.Labels, after.Labels) && slices.Equal(before.Fields, after.Fields)
}

// after returns the index of the first entry from seq on.
func (l *eventLog) after(seq uint64) int {
	return sort.Search(len(l.entries), func(i int) bool { return l.entries[i].seq >= seq })
}

// outlive is called when the ring has dropped an event. A plain event in the log does not need the
// previous state, so the log does not keep it in memory.
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

// copy copies events into dst, from the cursor of w up to its horizon, as many as there is room
// for, and beyond that those of the last version, which is last if no event was copied yet. Bit i
// of superseded is set if dst[i] was superseded. The third result is where to continue, at least
// the horizon at the end. partial says that the event there has the version of the last one copied.
func (l *eventLog) copy(dst []*Event, w *Watcher, room int, last uint64) (n int, superseded, _ uint64, partial bool) {
	i, next := l.after(w.cursor), max(w.cursor, w.horizon)
	for ; i < len(l.entries) && n < len(dst); i++ {
		e := &l.entries[i]
		if !e.isFor(w) {
			continue
		}
		if e.seq >= w.horizon && e.rv != last {
			return n, superseded, next, false
		}
		if n >= room && e.rv != last {
			break
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

// isFor reports whether w reads the entry. A superseded one is read if it is held for w, or if it
// was not plain.
func (e *entry) isFor(w *Watcher) bool {
	return e.event != nil && (e.held == 0 || e.superseded || e.held&w.held != 0)
}

// tidyLog drops entries that all watchers have read, once the log has grown, and keeps it within
// the bounds of the ring. From half of the bounds on, it makes waiting watchers read now; if that
// does not help, they read from the ring, or have fallen off it. Watchers that must read now are
// appended to woken. The caller holds m.mu.
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
				woken = w.wakeNow(woken)
			}
		}
	}
	l.dueLen = len(l.entries) + min(len(l.entries)+tidyAtLeast, most/8+1)
	l.dueBytes = l.bytes + mostBytes/8
	return woken
}

// wakeNow makes w read now and appends it to woken, unless that has been done before.
func (w *Watcher) wakeNow(woken []*Watcher) []*Watcher {
	if w.mustReadNow.Swap(true) {
		return woken
	}
	return append(woken, w)
}

// forget drops the entries that all watchers have read, and the remains of dropped ones. A watcher
// whose next event is neither in the log nor in the ring does not count.
func (l *eventLog) forget(r *ring) {
	from := r.head
	for w := range l.readers {
		if !w.armed && (w.readsLog() || !w.isOff(r)) {
			from = min(from, max(w.cursor, l.start))
		}
	}
	retained := l.entries[:0]
	for i := range l.entries {
		switch e := &l.entries[i]; {
		case e.event == nil:
		case e.seq < from:
			l.drop(e)
		default:
			retained = append(retained, *e)
		}
	}
	clear(l.entries[len(retained):])
	l.entries, l.start = retained, from
	if cap(retained) > 4*len(retained)+4*tidyAtLeast {
		l.entries = slices.Clone(retained)
	}
}
