package watchmux

import (
	"math/bits"
	"time"
)

// Who may send only so much at a time stops in the midst of what it has to read. What changes
// all the time would never come to it then: the later an event, the later it is read, and each
// of these is superseded before. So it holds what there is: the last events of the
// objects at that moment stay in the log, though later ones supersede them, until it has come
// there. What changes meanwhile comes in the next turn, in which the object that was quiet for
// longest is the first.
//
// One hold is of all coalescing watchers that said that they may stop and hold nothing yet: their
// turns begin together, and what they are sent is the same. Who comes to the end waits for the others,
// and begins the next turn with them. But one that reads slowly, or not at all, keeps nobody waiting for
// long: there may be a few holds at a time, each of which keeps one event more of each object at
// most. They are given up when there is no room.

// HoldFor is for how long a watcher may hold what it has to read. So much later what is left must
// be read at once.
const HoldFor = 2 * time.Minute

const (
	// maxHolds is how many holds there are at a time. When there are as many, the one of which
	// nothing was read for stuckAfter makes room for another.
	maxHolds   = 4
	stuckAfter = 10 * time.Second
	// aloneAfter is for how long one waits for those that hold something, with whom it shares its turns.
	aloneAfter = 2 * time.Second
)

// hold is what is held. Guarded by Mux.mu.
type hold struct {
	// end is behind the last event, rv the version up to which there is everything; since when it is
	// held, and when one of its readers last asked for it.
	end, rv      uint64
	since, moved int64
	// readers are those who have not come to the end, superseded how many events are kept for
	// them. Without readers there is no hold.
	readers, superseded int
}

// holdSet is a set of holds of the log, by their places.
type holdSet uint8

// Hold is called when a coalescing watcher leaves events unread that Next could return. It is to come
// to all of them within HoldFor; ok is false when that is over, or when they cannot be kept: then they
// are to be read now. When Next has come to the end of what was held, its rv is the version
// at that moment, though the watcher is Behind.
func (w *Watcher) Hold() (ok bool) {
	m := w.mux
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err != nil || w.armed || !w.holds || m.mu.closed != nil || w.reading < m.mu.log.start {
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

// placeForHold finds the place of a new hold.
func (l *eventLog) placeForHold(now int64) (i int, ok bool) {
	if i = bits.TrailingZeros8(uint8(^l.held)); i < maxHolds {
		return i, true
	}
	i = l.stillest()
	return i, now-l.holds[i].moved >= int64(stuckAfter)
}

// stillest is the hold of which nothing was read for longest. There are some.
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

// hold holds what there is, as the i-th hold, for all who may stop and hold nothing. m.mu is held.
func (m *Mux) hold(i int, now int64) {
	l := m.mu.log
	l.release(i)
	h := &l.holds[i]
	*h = hold{end: m.mu.ring.head, rv: m.mu.rv, since: now, moved: now}
	l.held |= 1 << i
	for w := range l.readers {
		if !w.holds || w.armed || w.held != 0 || w.reading < l.start {
			continue
		}
		w.held, w.wanted = 1<<i, 0
		h.readers++
		if w.horizon > 0 {
			w.horizon = h.end
		}
	}
}

// holding are the holds that an event belongs to.
func (l *eventLog) holding(seq uint64) (holds holdSet) {
	for s := l.held; s != 0; s &= s - 1 {
		if i := s.first(); seq < l.holds[i].end {
			holds |= 1 << i
		}
	}
	return holds
}

// keep counts an event that is kept for some holds, or with -1 is no longer.
func (l *eventLog) keep(holds holdSet, n int) {
	for ; holds != 0; holds &= holds - 1 {
		l.holds[holds.first()].superseded += n
	}
}

// passed takes w out of its hold when it has come to its end. It may give nothing back.
func (l *eventLog) passed(w *Watcher) {
	if w.held == 0 {
		return
	}
	if h := &l.holds[w.held.first()]; w.cursor >= h.end {
		w.seen = max(w.seen, h.rv)
		l.leave(w)
	}
}

// leave takes w out of its hold, which ends with the last one.
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
	for n := 0; h.superseded > 0 && n < len(l.entries); n++ {
		e := &l.entries[n]
		if e.held&held == 0 {
			continue
		}
		h.superseded--
		if e.held &^= held; e.held == 0 && !e.superseded {
			l.drop(e)
		}
	}
	*h = hold{}
	l.held &^= held
}
