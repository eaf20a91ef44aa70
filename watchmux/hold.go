package watchmux

import (
	"math/bits"
	"time"
)

// A watcher with a limited rate stops in the middle of what it has to read. It would then never get
// to an object that changes constantly, because the later an event is read, the likelier it was
// superseded before. So the watcher holds what exists: the last events of the objects at that
// moment stay in the log, although later ones supersede them, until the watcher has read them.
// Later changes belong to the next round, which begins with the object that has not changed for the
// longest time.
//
// A hold belongs to all coalescing watchers that may stop and hold nothing yet. Their rounds begin
// together, and they are sent the same events. A watcher that has finished waits for the others and
// begins the next round with them. But a watcher that reads slowly, or not at all, does not delay
// the others for long: there may be a few holds at a time, each of which keeps at most one more
// event per object. Holds are abandoned when there is no room.

// HoldFor is how long a watcher may hold events. After that, the rest must be read at once.
const HoldFor = 2 * time.Minute

// Hold is called when a coalescing watcher leaves events unread that Next could return. The watcher
// must read all of them within HoldFor. ok is false if that time is over, or if they cannot be
// kept: the watcher then must read them now. When Next has reached the end of what was held, its rv
// is the version at that moment, although the watcher is Behind.
func (w *Watcher) Hold() (ok bool) {
	m := w.mux
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err != nil || w.armed || !w.holds || m.mu.closed != nil || !w.readsLog() {
		return false
	}
	l := m.mu.log
	if w.held != 0 {
		h := &l.holds[w.held.first()]
		h.moved = now
		return now-h.since < int64(HoldFor)
	}
	if w.wanted == 0 {
		w.wanted = now
	}
	if l.held != 0 && now-w.wanted < int64(aloneAfter) {
		return true
	}
	if i, ok := l.placeForHold(now); ok {
		m.hold(i, now)
	}
	return true
}

// placeForHold returns the index for a new hold.
func (l *eventLog) placeForHold(now int64) (i int, ok bool) {
	if i = bits.TrailingZeros8(uint8(^l.held)); i < maxHolds {
		return i, true
	}
	i = l.stillest()
	return i, now-l.holds[i].moved >= int64(stuckAfter)
}

// stillest returns the hold from which nothing was read for the longest time. There must be one.
func (l *eventLog) stillest() (still int) {
	still = -1
	for i := range l.holds {
		if l.holds[i].readers > 0 && (still < 0 || l.holds[i].moved < l.holds[still].moved) {
			still = i
		}
	}
	return still
}

func (s holdSet) first() int { return bits.TrailingZeros8(uint8(s)) }

// hold begins the i-th hold for all watchers that may stop and hold nothing. The caller holds m.mu.
func (m *Mux) hold(i int, now int64) {
	l := m.mu.log
	l.release(i)
	h := &l.holds[i]
	*h = hold{end: m.mu.ring.head, rv: m.mu.rv, since: now, moved: now}
	l.held |= 1 << i
	for w := range l.readers {
		if !w.holds || w.armed || w.held != 0 || !w.readsLog() {
			continue
		}
		w.held, w.wanted = 1<<i, 0
		h.readers++
		if w.horizon > 0 {
			w.horizon = h.end
		}
	}
}

// holding returns the holds that an event belongs to.
func (l *eventLog) holding(seq uint64) (holds holdSet) {
	for s := l.held; s != 0; s &= s - 1 {
		if i := s.first(); seq < l.holds[i].end {
			holds |= 1 << i
		}
	}
	return holds
}

// passed removes w from its hold if w has reached the end.
func (l *eventLog) passed(w *Watcher) {
	if w.held == 0 {
		return
	}
	if h := &l.holds[w.held.first()]; w.cursor >= h.end {
		w.seen = max(w.seen, h.rv)
		l.leave(w)
	}
}

// leave removes w from its hold, which ends with its last reader.
func (l *eventLog) leave(w *Watcher) {
	if w.held == 0 {
		return
	}
	i := w.held.first()
	w.held = 0
	if l.holds[i].readers--; l.holds[i].readers == 0 {
		l.release(i)
	}
}

// release ends the i-th hold.
func (l *eventLog) release(i int) {
	h, held := &l.holds[i], holdSet(1)<<i
	if h.readers > 0 {
		for w := range l.readers {
			if w.held == held {
				w.held = 0
			}
		}
	}
	for n := range l.after(h.end) {
		e := &l.entries[n]
		if e.held&held == 0 {
			continue
		}
		if e.held &^= held; e.held == 0 && !e.superseded {
			l.drop(e)
		}
	}
	*h = hold{}
	l.held &^= held
}

// drop drops the event of an entry.
func (l *eventLog) drop(e *entry) {
	if e.light {
		e.event.frames.retire()
	}
	l.bytes -= e.cost
	e.event, e.cost = nil, 0
}
