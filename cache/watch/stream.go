package watch

import (
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// stream is one client watch. It has no goroutine: kick queues it for delivery when its watcher has
// events, its timer fires, or it is to end.
//
//	        kick                 kick
//	idle ----------> queued  ----------> again
//	 ^                 |  delivery         | delivery
//	 +-----------------+ <-----------------+ (once more)
type stream struct {
	owner *Watches
	c     Collection
	req   *Request
	// from is the version after which events are delivered.
	from     uint64
	id       uint64 // among the streams of owner
	began    time.Time
	deadline time.Time
	// events counts the events that were sent, without the initial ones.
	events atomic.Uint64

	state atomic.Uint32
	// served is when the last delivery ended. It belongs to whoever made the state queued.
	served time.Time
	// reason is why the watch is to end, nil otherwise.
	reason atomic.Pointer[reason.WatchEnd]
	// leaving is set by Stop, which waits for the current delivery: it makes a scan of many objects
	// end.
	leaving atomic.Bool

	// mu excludes delivery and Stop from each other and guards all fields below.
	mu       sync.Mutex
	w        api.StreamWriter
	body     form.Watch
	watcher  *watchmux.Watcher
	stopped  bool
	writing  bool             // within WriteFrames
	initial  *store.Snapshot  // objects to be sent as ADDED, nil when done
	picked   []*object.Object // the selected ones of initial, if known
	initKey  string           // the first key of initial that was not sent
	markEnd  bool             // the bookmark after the initial events is due
	failure  *apierrors.StatusError
	waiting  waiting
	bookmark time.Time // when the next one is due; zero for never
	owed     bool      // one is due after the events before it
	last     uint64    // version of the last event sent
	timer    *time.Timer
	wake     time.Time // when timer fires
	ended    reason.WatchEnd
}

const (
	streamIdle uint32 = iota
	streamQueued
	streamAgain
)

// Start implements api.Stream.
func (s *stream) Start(w api.StreamWriter) {
	now := time.Now()
	s.mu.Lock()
	s.w = w
	if s.req.Options.AllowWatchBookmarks {
		s.bookmark = nextBookmark(now, s.deadline)
	}
	s.wake = s.nextWake()
	s.timer = time.AfterFunc(s.wake.Sub(now), s.kick)
	s.mu.Unlock()
	s.owner.add(s)
	if s.req.Pace.coalesces() {
		s.owner.coalescing.Add(1)
	}
	s.kick()
}

// Stop implements api.Stream.
func (s *stream) Stop() {
	s.leaving.Store(true)
	if s.watcher != nil { // it does not change after Start
		s.watcher.Stop()
	}
	s.mu.Lock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	ended := s.ended
	s.widen(false)
	if s.w != nil && s.req.Pace.coalesces() {
		s.owner.coalescing.Add(-1)
	}
	s.initial, s.picked = nil, nil
	s.body.Release()
	s.mu.Unlock()
	if ended == reason.NotEnded {
		ended = reason.WatchClient
	}
	s.owner.remove(s)
	s.owner.ended[ended].Inc()
	if s.req.Ended != nil {
		s.req.Ended(ended)
	}
}

// end makes the watch end after the events that it already has and a last bookmark. The first
// reason counts, except that a reason after which the client must not get anything more takes
// precedence.
func (s *stream) end(why reason.WatchEnd) {
	for {
		before := s.reason.Load()
		if before != nil && (before.Revoked() || !why.Revoked()) || s.reason.CompareAndSwap(before, &why) {
			break
		}
	}
	s.kick()
}

// fail makes the watch end with an ERROR event, or without one if err is nil. It runs before Start.
func (s *stream) fail(err *apierrors.StatusError, why reason.WatchEnd) {
	s.failure = err
	s.reason.Store(&why)
}

// kick queues the stream unless it is queued already. It never blocks.
func (s *stream) kick() {
	for {
		switch s.state.Load() {
		case streamIdle:
			if s.state.CompareAndSwap(streamIdle, streamQueued) {
				s.owner.writers.submit(s)
				return
			}
		case streamQueued:
			if s.state.CompareAndSwap(streamQueued, streamAgain) {
				return
			}
		default:
			return
		}
	}
}

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
	if s.deadline.Equal(s.began) { // the client asked for a watch that ends at once
		s.finish(sc, reason.WatchTimeout)
		return
	}
	if s.watcher == nil {
		s.finishFailed(sc)
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
		s.finish(sc, reason.WatchTimeout)
		return
	}
	if s.finishRevoked(sc) { // revoked during the last write
		return
	}
	if why := s.reason.Load(); why != nil {
		if s.req.Options.AllowWatchBookmarks && rv > 0 && whole {
			s.writeBookmark(sc, rv, false)
		}
		s.finish(sc, *why)
		return
	}
	next := s.nextWake()
	if s.waiting.left && s.waiting.until.Before(next) {
		next = s.waiting.until
	}
	s.wakeAt(next, now)
}

// wakeAt sets the timer. If the timer has fired for next already, it is set again.
func (s *stream) wakeAt(next, now time.Time) {
	if !next.Equal(s.wake) || !next.After(now) {
		s.wake = next
		s.timer.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// deliverEvents sends the waiting events. rv is the version up to which the client has received
// everything.
func (s *stream) deliverEvents(sc *scratch) (rv uint64, ok bool) {
	s.waiting.sent = 0
	atOnce := s.req.Pace.atOnce()
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
			s.finishFailed(sc)
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

// write sends the frames of sc.
func (s *stream) write(sc *scratch) bool {
	if len(sc.frames.List()) == 0 {
		return true
	}
	if s.req.Pace.coalesces() {
		for _, piece := range sc.frames.List() {
			s.waiting.sent += int64(len(piece))
		}
	}
	s.writing = true
	err := sc.write(s.owner.panics, s.w)
	s.writing = false
	s.body.Sent(&sc.frames)
	if err != nil {
		s.finish(sc, reason.WatchClient)
		return false
	}
	return true
}

func (s *stream) writeBookmark(sc *scratch, rv uint64, initialEventsEnd bool) bool {
	if err := s.body.Bookmark(&sc.frames, s.c.BookmarkTemplate(), rv, initialEventsEnd); err != nil {
		s.fail500(sc, err)
		return false
	}
	return s.write(sc)
}

// finishFailed ends a watch that was rejected or has fallen behind.
func (s *stream) finishFailed(sc *scratch) {
	if s.failure != nil {
		s.body.Error(&sc.frames, s.failure)
		if !s.write(sc) {
			return
		}
	}
	s.finish(sc, *s.reason.Load())
}

// finishRevoked ends the watch of a client that has lost its permission and gets nothing more. It
// is called before each write, because a delivery to a slow client takes long.
func (s *stream) finishRevoked(sc *scratch) bool {
	why := s.reason.Load()
	if why == nil || !why.Revoked() {
		return false
	}
	if *why == reason.NamespacesChanged {
		s.body.Error(&sc.frames, api.NewOtherNamespaces())
		if !s.write(sc) {
			return true
		}
	}
	s.finish(sc, *why)
	return true
}

// fail500 ends the watch when an object cannot be rendered.
func (s *stream) fail500(sc *scratch, err error) {
	s.body.Error(&sc.frames, apierrors.NewInternalError(err))
	if s.write(sc) {
		s.finish(sc, reason.WatchFailed)
	}
}

func (s *stream) finish(sc *scratch, why reason.WatchEnd) {
	if why != reason.WatchClient {
		s.body.End(&sc.frames)
		if !s.write(sc) {
			return // the client has left
		}
	}
	s.ended = why
	s.w.Close()
}

// nextWake returns until when the stream may sleep.
func (s *stream) nextWake() time.Time {
	if next := s.nextDueBookmark(); !next.IsZero() && next.Before(s.deadline) {
		return next
	}
	return s.deadline
}

// nextBookmark returns when the next bookmark is due: in a minute, and once shortly before the
// deadline. It returns zero after that.
func nextBookmark(now, deadline time.Time) time.Time {
	next := now.Add(bookmarkPeriod)
	if last := deadline.Add(-bookmarkBeforeEnd); last.Before(next) {
		next = last
	}
	if !next.After(now) {
		return time.Time{}
	}
	return next
}
