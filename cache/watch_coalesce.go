package cache

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// A watch may coalesce: after a delivery, events wait for its window, and of the
// modifications of an object that came meanwhile the client gets the last (see
// watchmux.Watcher.Coalesce). A watch that was quiet gets an event at once. What is not of
// events never waits: the objects that a watch begins with, bookmarks, for which what waits is
// delivered first, and the end, for whatever reason.
//
// A watch may have a bound of bytes a second. When a delivery is larger than the window
// carries, the next one waits for as long as its bytes take: the window widens, and what
// there is to send does not grow with it, but with the objects that change. It widens to
// defaults.MaxCoalesce; what is more is sent nevertheless.

// Pace is how fast the events of a watch are delivered.
type Pace struct {
	// Coalesce is the window, 0 for none.
	Coalesce time.Duration
	// BytesPerSecond is from which rate on the window widens, 0 for none.
	BytesPerSecond int64
}

// coalesces reports whether events may wait.
func (p *Pace) coalesces() bool { return p.Coalesce > 0 || p.BytesPerSecond > 0 }

// wait is how long events wait after a delivery of so many bytes, and whether that is for
// the bound of bytes.
func (p *Pace) wait(bytes int64) (wait time.Duration, widened bool) {
	if p.BytesPerSecond <= 0 {
		return p.Coalesce, false
	}
	takes := time.Duration(min(float64(bytes)/float64(p.BytesPerSecond), defaults.MaxCoalesce.Seconds()) * float64(time.Second))
	return max(p.Coalesce, takes), takes > max(p.Coalesce, pacePause)
}

// waiting is how a coalescing watch waits. It is guarded by watchStream.mu.
type waiting struct {
	until time.Time // when events are delivered again; zero at once
	sent  int64     // bytes of the delivery under way
	// widened is set while the bound of bytes makes the window wider.
	widened bool
}

// holdsBack reports whether there is nothing to be delivered but events that are to wait, and
// has the watch woken when they are due.
func (s *watchStream) holdsBack() bool {
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
func (s *watchStream) dueNow(now time.Time) bool {
	return s.reason.Load() != nil || !now.Before(s.deadline) || !s.bookmark.IsZero() && !now.Before(s.bookmark)
}

// delivered says that the events that had come were delivered.
func (s *watchStream) delivered(now time.Time) {
	sent := s.waiting.sent
	s.waiting.sent = 0
	wait, widened := s.req.Pace.wait(sent)
	if widened {
		wait = s.owner.together(now, wait)
	}
	if sent > 0 {
		s.waiting.until = now.Add(wait)
	}
	s.widen(widened)
}

// widenedStep is how far apart the moments are at which widened watches are served.
const widenedStep = 500 * time.Millisecond

// together makes a wait longer by less than a step, so that watches which wait for long are
// served at the same moments, and share what is encoded for them: the last states of objects
// that change all the time are others at each.
func (ws *Watches) together(now time.Time, wait time.Duration) time.Duration {
	past := (now.Sub(ws.begun) + wait) % widenedStep
	return wait + (widenedStep-past)%widenedStep
}

// widen counts the watch while its window is wider than it is to be.
func (s *watchStream) widen(widened bool) {
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
func (s *watchStream) wantsAll(began *time.Time) bool {
	now := time.Now()
	if began.IsZero() {
		*began = now
	}
	return s.dueNow(now) && now.Sub(*began) < bookmarkBeforeEnd
}
