package cache

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/reason"
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

// delivered says that all events were delivered.
func (s *watchStream) delivered(now time.Time) {
	sent := s.waiting.sent
	s.waiting.sent = 0
	wait, widened := s.req.Pace.wait(sent)
	if sent > 0 {
		s.waiting.until = now.Add(wait)
	}
	s.widen(widened)
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

// whyNow is why the watch ends whose end is due.
func (s *watchStream) whyNow() reason.WatchEnd {
	if why := s.reason.Load(); why != nil {
		return *why
	}
	return reason.WatchTimeout
}

// isTooSlow reports whether a client takes so long to read what has come that the end of
// its watch does not wait for it: where events come faster than it reads there is always more.
func (s *watchStream) isTooSlow(began time.Time) bool {
	now := time.Now()
	return now.Sub(began) > bookmarkBeforeEnd && (s.reason.Load() != nil || !now.Before(s.deadline))
}
