package watch

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
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
	ws := s.owner
	if s.req.Pace.coalesces() {
		ws.coalescing.Add(1)
	}
	ws.mu.Lock()
	ws.mu.open[s] = struct{}{}
	draining := ws.mu.draining
	ws.mu.Unlock()
	if draining {
		s.end(reason.WatchDraining)
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
	s.initial = nil
	s.body.Release()
	s.mu.Unlock()
	if ended == reason.NotEnded {
		ended = reason.WatchClient
	}
	ws := s.owner
	ws.mu.Lock()
	delete(ws.mu.open, s)
	ws.mu.Unlock()
	ws.ended.WithLabelValues(ended.String()).Inc()
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
