package watch

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/reason"
)

// run delivers once. If the stream was kicked meanwhile, it is queued again.
func (s *stream) run(sc *scratch) {
	s.state.Store(streamQueued)
	if err := s.owner.panics.Run("watch", func() { s.deliver(sc) }); err != nil {
		s.giveUp(sc, err)
	}
	s.served = time.Now()
	if !s.state.CompareAndSwap(streamQueued, streamIdle) {
		s.owner.writers.submit(s)
	}
}

// giveUp ends a watch whose delivery panicked: like one whose object cannot be rendered or, if a
// write was interrupted, at once.
func (s *stream) giveUp(sc *scratch, err error) {
	contained := s.owner.panics.Run("watch", func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.stopped || s.ended != reason.NotEnded:
		case s.writing:
			s.ended = reason.WatchFailed
			s.w.Abort()
		default:
			s.fail500(sc, err)
		}
	})
	if contained != nil {
		*sc = scratch{queued: sc.queued, since: sc.since}
	}
}

// deliver writes everything that is due.
func (s *stream) deliver(sc *scratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.w == nil || s.ended != reason.NotEnded {
		return
	}
	if s.finishRevoked(sc) {
		return
	}
	if s.deadline.Equal(s.began) { // the client requested a watch that ends at once
		s.finish(sc, reason.WatchTimeout, nil)
		return
	}
	if s.watcher == nil {
		s.finish(sc, *s.reason.Load(), s.failure)
		return
	}
	if !s.deliverInitial(sc) || s.holdsBack() {
		return
	}
	rv, ok := s.deliverEvents(sc)
	if !ok {
		return
	}
	now := time.Now()
	if s.req.Pace.coalesces() {
		s.delivered(now)
	}
	if !s.bookmark.IsZero() && !now.Before(s.bookmark) {
		s.owed = true
		s.bookmark = nextBookmark(now, s.deadline)
	}
	whole := rv >= s.last // otherwise there are events before rv
	if s.owed && whole {
		s.owed = false
		if !s.writeBookmark(sc, rv, false) {
			return
		}
	}
	if !now.Before(s.deadline) {
		s.finish(sc, reason.WatchTimeout, nil)
		return
	}
	if s.finishRevoked(sc) { // revoked during the last write
		return
	}
	if why := s.reason.Load(); why != nil {
		if s.req.Options.AllowWatchBookmarks && rv > 0 && whole {
			s.writeBookmark(sc, rv, false)
		}
		s.finish(sc, *why, nil)
		return
	}
	next := s.nextWake()
	if s.waiting.left && s.waiting.until.Before(next) {
		next = s.waiting.until
	}
	s.wakeAt(next, now)
}

// deliverEvents sends the waiting events. rv is the version up to which the client has received
// everything.
func (s *stream) deliverEvents(sc *scratch) (rv uint64, ok bool) {
	s.waiting.sent = 0
	atOnce := eventsAtOnce
	if s.req.Pace.BytesPerSecond > 0 {
		atOnce = portionEvents
	}
	var began time.Time
	for {
		if s.finishRevoked(sc) {
			return 0, false
		}
		var err error
		sc.deliveries, rv, err = s.watcher.Next(sc.deliveries[:0], atOnce)
		s.body.Begin(&sc.frames)
		for _, d := range sc.deliveries {
			if err := s.body.Event(&sc.frames, d); err != nil {
				s.fail500(sc, err)
				return 0, false
			}
		}
		if !s.write(sc) {
			return 0, false
		}
		n := len(sc.deliveries)
		s.events.Add(uint64(n))
		if n > 0 {
			s.last = sc.deliveries[n-1].RV
		}
		switch {
		case err != nil && s.leaving.Load():
			return 0, false
		case err != nil:
			_ = s.failed(err)
			s.finish(sc, *s.reason.Load(), s.failure)
			return 0, false
		}
		s.waiting.stopped = n >= atOnce && s.stops()
		if n >= atOnce && !s.waiting.stopped {
			continue
		}
		clear(sc.deliveries)
		s.waiting.left = s.waiting.stopped || s.watcher.Behind()
		if s.waiting.left && !s.waiting.stopped && s.wantsAll(&began) {
			continue
		}
		// A bookmark must never be below what the client has received.
		return max(rv, s.from), true
	}
}
