package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

// errDeletionUnknown says that the store neither holds an object nor remembers its deletion. The
// store may not even have seen the creation yet.
var errDeletionUnknown = errors.New("deletion not recorded")

// deletionLookBack is how many of the newest events are searched for a deletion.
const deletionLookBack = 1024

// WaitDeleted returns when the store has seen the deletion of the object with this key and uid, so
// that no later snapshot has it. If the object is absent and its deletion was not seen, it fails at
// once, because the watch may yet bring the creation. The other errors are those of WaitFor.
func (s *Store) WaitDeleted(ctx context.Context, key, uid string, timeout time.Duration) error {
	err := s.waitUntil(ctx, timeout, s.LatestRV()+1,
		func() chan struct{} { return s.waits.key(key) },
		func() bool {
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
