package watch

import (
	"time"

	"github.com/kubeweir/kubeweir/watchmux"
)

// A watch may coalesce: after a delivery, events wait for its window, and of the
// modifications of an object that came meanwhile the client gets the last (see
// watchmux.Watcher.Coalesce). A watch that was quiet gets an event at once. What is not of
// events never waits: the objects that a watch begins with, bookmarks, for which what waits is
// delivered first, and the end, for whatever reason.
//
// A watch may have a bound of bytes a second. What a delivery brings is paid before the next one. When
// there is more than can be paid in a moment, it is held (watchmux.Watcher.Hold) and sent in
// portions, and so the window widens: what there is to send does not grow with it, but with the objects
// that change. It widens to watchmux.HoldFor; what is more is sent nevertheless. Bookmarks come
// when all that was held was sent.

// Pace is how fast the events of a watch are delivered.
type Pace struct {
	// Coalesce is the window, 0 for none.
	Coalesce time.Duration
	// BytesPerSecond is from which rate on the window widens, 0 for none.
	BytesPerSecond int64
}

const (
	// portionTime is how far apart the portions of what is held are at least, and for how long one is
	// paid. All watches are served at the same moments, and share what is encoded for them.
	portionTime = 500 * time.Millisecond
	// portionEvents is after how many events the bytes are looked at.
	portionEvents = 16
)

// coalesces reports whether events may wait.
func (p *Pace) coalesces() bool { return p.Coalesce > 0 || p.BytesPerSecond > 0 }

// atOnce is how many events are encoded and written together.
func (p *Pace) atOnce() int {
	if p.BytesPerSecond > 0 {
		return portionEvents
	}
	return eventsAtOnce
}

// takes is for how long so many bytes are paid.
func (p *Pace) takes(bytes int64) time.Duration {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return time.Duration(min(float64(bytes)/float64(p.BytesPerSecond), watchmux.HoldFor.Seconds()) * float64(time.Second))
}

// waiting is how a coalescing watch waits. It is guarded by watchStream.mu.
type waiting struct {
	until time.Time // when events are delivered again; zero at once
	paid  time.Time // until when what was sent is paid
	sent  int64     // bytes of the delivery under way
	begun bool      // there was one
	// stopped is set while a part of what is held was not sent, left while there is more than
	// was sent, for whatever reason: nobody says that there is.
	stopped, left bool
	// widened is set while the bound of bytes makes the window wider.
	widened bool
}

// holdsBack reports whether there is nothing to be delivered but events that are to wait, and
// has the watch woken when they are due.
func (s *stream) holdsBack() bool {
	until := s.waiting.until
	if until.IsZero() {
		return false
	}
	now := time.Now()
	if !now.Before(until) || s.dueNow(now) || s.watcher.Hurried() {
		return false
	}
	next := s.nextWake()
	if until.Before(next) {
		next = until
	}
	s.wakeAt(next, now)
	return true
}

// dueNow reports whether something is due that does not wait.
func (s *stream) dueNow(now time.Time) bool {
	bookmark := s.nextDueBookmark()
	return s.reason.Load() != nil || !now.Before(s.deadline) || !bookmark.IsZero() && !now.Before(bookmark)
}

// nextDueBookmark is when a bookmark is due that brings what waits before it; zero for never. With
// a bound of bytes there may be much, which a bookmark waits for, but the one before the deadline.
func (s *stream) nextDueBookmark() time.Time {
	if s.bookmark.IsZero() || s.req.Pace.BytesPerSecond <= 0 || !s.waiting.left {
		return s.bookmark
	}
	return s.deadline.Add(-bookmarkBeforeEnd)
}

// stops reports whether the delivery under way brought enough: what is left is held.
func (s *stream) stops() bool {
	if rate := s.req.Pace.BytesPerSecond; rate <= 0 || s.req.Pace.takes(s.waiting.sent) < portionTime || s.watcher.Hurried() {
		return false
	}
	now := time.Now()
	ends := s.reason.Load() != nil || !now.Before(s.deadline) || !s.bookmark.IsZero() && !now.Before(s.deadline.Add(-bookmarkBeforeEnd))
	return !ends && s.watcher.Hold()
}

// delivered says that events were delivered, all that had come or a portion of them.
func (s *stream) delivered(now time.Time) {
	w := &s.waiting
	sent, takes := w.sent, s.req.Pace.takes(w.sent)
	w.sent = 0
	if !w.begun { // what the watch missed before it came is sent at once, and not paid
		w.begun = true
		takes = min(takes, portionTime)
	}
	if sent == 0 {
		s.widen(w.stopped)
		return
	}
	// A delivery may come later than it was due: that much is paid already.
	if credit := now.Add(-portionTime); w.paid.Before(credit) {
		w.paid = credit
	}
	w.paid = w.paid.Add(takes)
	window := s.req.Pace.Coalesce
	if w.stopped {
		window = 0
	}
	// What had to be sent before its time, again and again, would keep it waiting for hours.
	if most := now.Add(watchmux.HoldFor); w.paid.After(most) {
		w.paid = most
	}
	wait := w.paid.Sub(now)
	widened := w.stopped || wait > max(window, pacePause)
	if wait = max(wait, window); widened {
		wait = s.owner.together(now, wait)
	}
	w.until = now.Add(wait)
	s.widen(widened)
}

// together makes a wait longer by less than portionTime, so that watches which wait for long are
// served at the same moments: the last states of objects that change all the time are others at each.
func (ws *Watches) together(now time.Time, wait time.Duration) time.Duration {
	past := (now.Sub(ws.begun) + wait) % portionTime
	return wait + (portionTime-past)%portionTime
}

// widen counts the watch while its window is wider than it is to be.
func (s *stream) widen(widened bool) {
	switch {
	case widened == s.waiting.widened:
		return
	case widened:
		s.owner.widened.Add(1)
	default:
		s.owner.widened.Add(-1)
	}
	s.waiting.widened = widened
}

// wantsAll reports whether a watch that is behind goes on to the end: for what is due to come
// after all events. It gives up on a client that reads slower than events come.
func (s *stream) wantsAll(began *time.Time) bool {
	now := time.Now()
	if began.IsZero() {
		*began = now
	}
	return s.dueNow(now) && now.Sub(*began) < bookmarkBeforeEnd
}
