package watch

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// wakeAt sets the timer. If the timer has fired for next already, it is set again.
func (s *stream) wakeAt(next, now time.Time) {
	if !next.Equal(s.wake) || !next.After(now) {
		s.wake = next
		s.timer.Reset(max(next.Sub(now), time.Millisecond))
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
		s.finish(sc, reason.WatchClient, nil)
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

// finishRevoked ends the watch of a client that has lost its permission and gets nothing more. It
// is called before each write, because a delivery to a slow client takes long.
func (s *stream) finishRevoked(sc *scratch) bool {
	why := s.reason.Load()
	if why == nil || !why.Revoked() {
		return false
	}
	var failure *apierrors.StatusError
	if *why == reason.NamespacesChanged {
		failure = api.NewOtherNamespaces()
	}
	s.finish(sc, *why, failure)
	return true
}

// fail500 ends the watch when an object cannot be rendered.
func (s *stream) fail500(sc *scratch, err error) {
	s.finish(sc, reason.WatchFailed, apierrors.NewInternalError(err))
}

// finish ends the watch with an ERROR event, or without one if failure is nil.
func (s *stream) finish(sc *scratch, why reason.WatchEnd, failure *apierrors.StatusError) {
	if failure != nil {
		s.body.Error(&sc.frames, failure)
		if !s.write(sc) {
			return // the client has left
		}
	}
	if why != reason.WatchClient {
		s.body.End(&sc.frames)
		if !s.write(sc) {
			return
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

// failed turns an error of the multiplexer into the end of the watch: a reason and perhaps an ERROR
// event. It returns an error only before Start, for the caller of Watch.
func (s *stream) failed(err error) error {
	var why reason.WatchEnd
	var expired *watchmux.ExpiredError
	switch {
	case errors.As(err, &expired) && s.w == nil && s.req.ForwardExpired != nil && s.req.ForwardExpired():
		return read.Forward(reason.History, err)
	case source.IsExpired(err):
		why, s.failure = reason.WatchExpired, api.NewExpiredWatch(s.from, s.c.Mux().Oldest())
	case errors.As(err, &expired):
		why = reason.WatchExpired
		if s.watcher != nil {
			why = reason.WatchSlow
		}
		s.failure = api.NewExpiredWatch(s.from, expired.Oldest)
	case errors.Is(err, store.ErrRewound):
		why, s.failure = reason.WatchRewound, api.NewExpiredWatch(s.from, 0)
	case errors.Is(err, store.ErrDiffers):
		why, s.failure = reason.WatchDiffers, api.NewExpiredWatch(s.from, 0)
	// Otherwise the collection stopped. kube-apiserver ends watches without an error then, too, and
	// clients start new ones.
	case errors.Is(err, store.ErrDropped):
		why = reason.WatchRedefined
	case errors.Is(err, store.ErrManagerClosed), errors.Is(err, store.ErrIdle):
		why = reason.WatchStopped
	default:
		why = reason.WatchFeedLost
	}
	s.reason.Store(&why)
	return nil
}

// nextDueBookmark returns when the next bookmark is due that flushes the waiting events, zero for
// never. With a limit of bytes there may be many events, so that only the bookmark before the
// deadline flushes them.
func (s *stream) nextDueBookmark() time.Time {
	if s.bookmark.IsZero() || s.req.Pace.BytesPerSecond <= 0 || !s.waiting.left {
		return s.bookmark
	}
	return s.deadline.Add(-bookmarkBeforeEnd)
}
