package store

import (
	"context"
	"time"
)

// WaitFor returns when LatestRV is at least rv. The error is a *TooLargeError after timeout (at
// once if that is 0), the cause of ctx, or a *StoppedError.
func (s *Store) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if s.LatestRV() >= rv {
		return nil
	}
	if timeout <= 0 {
		return &TooLargeError{RV: rv, Current: s.LatestRV()}
	}
	w := s.waits.version(rv)
	defer s.waits.cancel(w)
	if s.LatestRV() >= rv {
		return nil
	}
	return s.Wait(ctx, w.done, timeout, rv)
}

// WaitForComplete waits until no change up to rv is missing. The errors are those of WaitFor.
func (s *Store) WaitForComplete(ctx context.Context, rv uint64, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for !s.IsComplete(rv) {
		w := s.waits.version(rv)
		var err error
		if !s.IsComplete(rv) { // a change between the two does not wake w
			err = s.Wait(ctx, w.done, time.Until(deadline), rv)
		}
		s.waits.cancel(w)
		if err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for done. The errors are those of WaitFor; rv is only reported.
func (s *Store) Wait(ctx context.Context, done <-chan struct{}, timeout time.Duration, rv uint64) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return &TooLargeError{RV: rv, Current: s.LatestRV()}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Stopped:
		return &StoppedError{Reason: s.StopReason()}
	}
}
