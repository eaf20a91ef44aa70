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
	return s.waitUntil(ctx, timeout, rv,
		func() chan struct{} { return s.waits.version(rv) },
		func() bool { return s.LatestRV() >= rv })
}

// WaitForComplete waits until no change up to rv is missing. The errors are those of WaitFor.
func (s *Store) WaitForComplete(ctx context.Context, rv uint64, timeout time.Duration) error {
	return s.waitUntil(ctx, timeout, rv,
		func() chan struct{} { return s.waits.version(rv) },
		func() bool { return s.IsComplete(rv) })
}

// waitUntil returns when isReached does. It checks after each call of register, and again when what
// that returned is closed. The errors are those of WaitFor; rv is only reported.
func (s *Store) waitUntil(ctx context.Context, timeout time.Duration, rv uint64, register func() chan struct{}, isReached func() bool) error {
	deadline := time.Now().Add(timeout)
	for {
		done := register()
		if isReached() {
			s.waits.cancel(done)
			return nil
		}
		err := s.Wait(ctx, done, time.Until(deadline), rv)
		s.waits.cancel(done)
		if err != nil {
			return err
		}
	}
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
