package cache

import (
	"context"
	"time"
)

// waitFor returns when readers are at rv. The error is a *TooLargeError after timeout (at once if
// that is 0), the cause of ctx, or a *stoppedError.
func (s *store) waitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if s.shown() >= rv {
		return nil
	}
	if timeout <= 0 {
		return &TooLargeError{RV: rv, Current: s.shown()}
	}
	w := s.waits.version(rv)
	defer s.waits.cancel(w)
	if s.shown() >= rv {
		return nil
	}
	return s.wait(ctx, w.done, timeout, rv)
}

// waitForAll is waitFor for all changes of rv, where there are several.
func (s *store) waitForAll(ctx context.Context, rv uint64, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for !s.isWhole(rv) {
		w := s.waits.version(rv)
		var err error
		if !s.isWhole(rv) { // one that came between the two does not wake
			err = s.wait(ctx, w.done, time.Until(deadline), rv)
		}
		s.waits.cancel(w)
		if err != nil {
			return err
		}
	}
	return nil
}

// wait waits for done.
func (s *store) wait(ctx context.Context, done <-chan struct{}, timeout time.Duration, rv uint64) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return &TooLargeError{RV: rv, Current: s.shown()}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Stopped:
		return &stoppedError{s.StopReason()}
	}
}
