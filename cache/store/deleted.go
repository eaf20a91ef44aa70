package store

import (
	"context"
	"errors"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

// errDeletionUnknown says that a collection neither holds an object nor remembers
// its deletion: it may not even have seen its creation yet.
var errDeletionUnknown = errors.New("the collection does not remember the deletion")

// deletionLookBack bounds how many of the newest events are searched for a deletion.
const deletionLookBack = 1024

// WaitDeleted returns when the store has seen the object with uid at key go:
// none of its later states has it. An object that is absent and was not seen to go is
// an error at once, because the feed may yet bring its creation. The other errors are
// those of waitFor.
func (s *Store) WaitDeleted(ctx context.Context, key, uid string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		w := s.waits.key(key)
		if o := s.Latest().Get(key); o == nil || o.UID != uid {
			s.waits.cancelKey(key, w)
			if s.sawDeletion(key, uid) {
				return nil
			}
			return errDeletionUnknown
		}
		err := s.Wait(ctx, w.done, time.Until(deadline), s.LatestRV()+1)
		s.waits.cancelKey(key, w)
		if err != nil {
			return err
		}
	}
}

// sawDeletion reports whether one of the newest events took the object away.
func (s *Store) sawDeletion(key, uid string) bool {
	// The mux has what the state shows once publish is free.
	s.publish.Lock()
	defer s.publish.Unlock()
	seen, left := false, deletionLookBack
	// The error is an *ExpiredError: an event that is dropped meanwhile was not found.
	_ = s.mux.Since(s.mux.Oldest(), func(ev *watchmux.Event) bool {
		if ev.Prev != nil && ev.Prev.UID == uid && ev.Prev.Key == key {
			// Its newest event: it went by it, also when another took its place.
			seen = ev.Type == api.Deleted || ev.Object.UID != uid
			return false
		}
		left--
		return left > 0
	})
	return seen
}
