package watchmux

import "time"

// Who may send only so much at a time stops in the midst of what it has to read. What changes
// all the time would never come to it then: the later an event, the later it is read, and each
// of these is superseded before. So it holds what there is: the last events of the
// objects at that moment stay in the log, though later ones supersede them, until it has come
// there. What changes meanwhile comes in the next turn, in which the object that was quiet for
// longest is the first.
//
// There is one hold at a time, of all coalescing watchers that said that they may stop: their
// turns begin together, and what they are sent is the same. At most one event more of each object
// is kept for it. It is given up when there is no room.

// HoldFor is for how long a watcher may hold what it has to read. So much later what is left must
// be read at once.
const HoldFor = 2 * time.Minute

// hold is what is held. Guarded by Mux.mu.
type hold struct {
	// end is behind the last event, 0 without a hold; rv is the version up to which there is
	// everything, and since when it is held.
	end, rv uint64
	since   int64
	// readers are those who have not come to the end, superseded how many events are kept for them.
	readers, superseded int
}

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
	switch age := now - l.hold.since; {
	case w.held:
		return age < int64(HoldFor)
	case l.hold.end == 0, age >= 2*int64(HoldFor): // one that does not read holds up nobody
		m.hold(now)
	}
	return true
}

// hold holds what there is for all who may stop. m.mu is held.
func (m *Mux) hold(now int64) {
	l := m.mu.log
	l.release()
	l.hold = hold{end: m.mu.ring.head, rv: m.mu.rv, since: now}
	for w := range l.readers {
		if !w.holds || w.armed || w.reading < l.start {
			continue
		}
		w.held = true
		l.hold.readers++
		if w.horizon > 0 {
			w.horizon = l.hold.end
		}
	}
}

// passed takes w out of the hold when it has come to its end. It may give nothing back.
func (l *eventLog) passed(w *Watcher) {
	if w.held && w.cursor >= l.hold.end {
		w.seen = max(w.seen, l.hold.rv)
		l.leave(w)
	}
}

// leave takes w out of the hold, which ends with the last one.
func (l *eventLog) leave(w *Watcher) {
	if !w.held {
		return
	}
	w.held = false
	if l.hold.readers--; l.hold.readers == 0 {
		l.release()
	}
}

// release ends the hold.
func (l *eventLog) release() {
	if l.hold.readers > 0 {
		for w := range l.readers {
			w.held = false
		}
	}
	for i := 0; l.hold.superseded > 0 && i < len(l.entries); i++ {
		e := &l.entries[i]
		if !e.held {
			continue
		}
		l.hold.superseded--
		e.held = false
		if !e.superseded {
			l.drop(e)
		}
	}
	l.hold = hold{}
}
