package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// WaitFor returns when LatestRV is at least rv. The error is a *TooLargeError after timeout (at
// once if that is 0), the cause of ctx, or ErrStopped.
func (s *Store) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if s.LatestRV() >= rv {
		return nil
	}
	if timeout <= 0 {
		return &TooLargeError{RV: rv, Current: s.LatestRV()}
	}
	return s.waitUntil(ctx, timeout, wait{rv: rv}, func() bool { return s.LatestRV() >= rv })
}

// WaitForComplete waits until no change up to rv is missing. The errors are those of WaitFor.
func (s *Store) WaitForComplete(ctx context.Context, rv uint64, timeout time.Duration) error {
	return s.waitUntil(ctx, timeout, wait{rv: rv}, func() bool { return s.IsComplete(rv) })
}

// errDeletionUnknown means that the store neither holds an object nor remembers its deletion. The
// store may not even have seen the creation yet.
var errDeletionUnknown = errors.New("deletion not recorded")

// deletionLookBack is how many of the newest events are searched for a deletion.
const deletionLookBack = 1024

// WaitDeleted returns when the store has seen the deletion of the object with this key and uid, so
// that no later snapshot has it. If the object is absent and its deletion was not seen, it fails at
// once, because the watch may yet bring the creation. The other errors are those of WaitFor.
func (s *Store) WaitDeleted(ctx context.Context, key, uid string, timeout time.Duration) error {
	err := s.waitUntil(ctx, timeout, wait{rv: s.LatestRV() + 1, key: key}, func() bool {
		o := s.Latest().Get(key)
		return o == nil || o.UID != uid
	})
	if err == nil && !s.sawDeletion(key, uid) {
		return errDeletionUnknown
	}
	return err
}

// sawDeletion reports whether one of the newest events removed the object.
func (s *Store) sawDeletion(key, uid string) bool {
	// While publish is held, the mux has all events that the state shows.
	s.publish.Lock()
	defer s.publish.Unlock()
	end := s.mux.Position()
	events, _ := s.mux.Between(end-min(end, deletionLookBack), end)
	for _, ev := range slices.Backward(events) {
		if ev.Prev != nil && ev.Prev.UID == uid && ev.Prev.Key == key {
			// This is the object's newest event. It is a deletion also if another object took its
			// place.
			return ev.Type == api.Deleted || ev.Object.UID != uid
		}
	}
	return false
}

// waitUntil returns when isReached does. It checks before it waits for want, and again after each
// wait. The errors are those of WaitFor, with want.rv.
func (s *Store) waitUntil(ctx context.Context, timeout time.Duration, want wait, isReached func() bool) error {
	deadline := time.Now().Add(timeout)
	for {
		done := s.waits.add(want)
		if isReached() {
			s.waits.cancel(done)
			return nil
		}
		err := s.Wait(ctx, done, time.Until(deadline), want.rv)
		s.waits.cancel(done)
		if err != nil {
			return err
		}
	}
}

// Wait waits for done. It returns the errors of WaitFor; rv is only used in their text.
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
		return fmt.Errorf("%w: %w", ErrStopped, s.StopReason())
	}
}
