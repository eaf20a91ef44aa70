package watch

import (
	"time"

	"github.com/kubeweir/kubeweir/watchmux"
)

// A watch may coalesce events. After a delivery, events then wait for an interval, and of several
// modifications of an object the client gets only the last one, see watchmux.Watcher.Coalesce. An
// event after an idle time is delivered at once. Only events wait: initial events do not, bookmarks
// flush the waiting events first, and so does the end of the watch.
//
// A watch may have a limit of bytes per second. The next delivery waits until the limit has paid
// for the last one. If there is more to send than the limit pays for in a moment, the events are
// held (watchmux.Watcher.Hold) and sent in portions, which extends the interval: the longer it is,
// the more modifications are superseded, so what there is to send depends on the number of objects
// that change. The interval is extended up to watchmux.HoldFor; beyond that, events are sent in
// spite of the limit. Bookmarks are sent when everything that was held has been sent.

const (
	// portionTime is the minimum time between two portions, and how long the limit pays for one.
	// All watches are served at the same multiples of it, so that they share encoded events.
	portionTime = 500 * time.Millisecond
	// portionEvents is the number of events after which the bytes are counted, and the most that
	// are encoded and written together then.
	portionEvents = 16
)

// takes returns how long it takes the limit to pay for bytes.
func (p *Pace) takes(bytes int64) time.Duration {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return time.Duration(min(float64(bytes)/float64(p.BytesPerSecond), watchmux.HoldFor.Seconds()) * float64(time.Second))
}

// holdsBack reports whether nothing but waiting events is due. It then wakes the watch when they
// are.
func (s *stream) holdsBack() bool {
	until := s.waiting.until
	if until.IsZero() {
		return false
	}
	now := time.Now()
	if !now.Before(until) || s.dueNow(now) || s.watcher.MustReadNow() {
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

// stops reports whether the current delivery has sent enough, so that the rest is held.
func (s *stream) stops() bool {
	if rate := s.req.Pace.BytesPerSecond; rate <= 0 || s.req.Pace.takes(s.waiting.sent) < portionTime || s.watcher.MustReadNow() {
		return false
	}
	now := time.Now()
	ends := s.reason.Load() != nil || !now.Before(s.deadline) || !s.bookmark.IsZero() && !now.Before(s.deadline.Add(-bookmarkBeforeEnd))
	return !ends && s.watcher.Hold()
}

// delivered records that all events or a portion of them were delivered.
func (s *stream) delivered(now time.Time) {
	w := &s.waiting
	sent, takes := w.sent, s.req.Pace.takes(w.sent)
	w.sent = 0
	if !w.begun { // events from before the watch are sent at once and not paid for
		w.begun = true
		takes = min(takes, portionTime)
	}
	if sent == 0 {
		s.widen(w.stopped)
		return
	}
	// If this delivery was late, part of it is already paid for.
	if credit := now.Add(-portionTime); w.paid.Before(credit) {
		w.paid = credit
	}
	w.paid = w.paid.Add(takes)
	window := s.req.Pace.Coalesce
	if w.stopped {
		window = 0
	}
	// Otherwise the bytes that had to be sent early, again and again, would delay the watch for
	// hours.
	if most := now.Add(watchmux.HoldFor); w.paid.After(most) {
		w.paid = most
	}
	wait := w.paid.Sub(now)
	extended := w.stopped || wait > max(window, pacePause)
	if wait = max(wait, window); extended {
		// Watches with long intervals are served at the same moments, up to portionTime later. The
		// last states of objects that change constantly are different at each moment and could not
		// be shared otherwise.
		past := (now.Sub(s.owner.begun) + wait) % portionTime
		wait += (portionTime - past) % portionTime
	}
	w.until = now.Add(wait)
	s.widen(extended)
}

// widen counts the watch while its interval is extended.
func (s *stream) widen(extended bool) {
	switch {
	case extended == s.waiting.extended:
		return
	case extended:
		s.owner.extended.Add(1)
	default:
		s.owner.extended.Add(-1)
	}
	s.waiting.extended = extended
}

// wantsAll reports whether a watch that is behind sends all its events now, because something is
// due that follows them. It gives up if the client reads more slowly than events arrive.
func (s *stream) wantsAll(began *time.Time) bool {
	now := time.Now()
	if began.IsZero() {
		*began = now
	}
	return s.dueNow(now) && now.Sub(*began) < bookmarkBeforeEnd
}
