package store

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// A proof (see Collection.freshRound) can show that the state held is that at a version
// that the store has not come to. The feed may still bring events up to there: of
// objects that came and went again. The watches get them, as they happened. But who
// reads the state sees none of those objects, which at that version are gone, nor a
// version below: readers are ahead of the store, until the feed has passed it.
//
// What readers have seen counts wherever versions may not go back, as the store's own
// version does.

// LatestRV is the version that readers are at.
func (s *Store) LatestRV() uint64 {
	ahead := s.ahead.Load() // first: what is dropped after that, the store has passed
	rv := s.rv.Load()
	if ahead != nil {
		return max(rv, ahead.rv)
	}
	return rv
}

// Latest is the view at shown.
func (s *Store) Latest() *View {
	ahead := s.ahead.Load() // first, as in shown
	v := s.Current()
	if ahead != nil && ahead.rv > v.rv {
		return ahead
	}
	return v
}

// At is viewAt, or the view that readers are at if that is at rv.
func (s *Store) At(rv uint64, now time.Time) (*View, error) {
	if ahead := s.ahead.Load(); ahead != nil && ahead.rv == rv {
		return ahead, nil
	}
	return s.AppliedAt(rv, now)
}

// Select is selectIndexed for readers.
func (s *Store) Select(ctx context.Context, f *object.Filter, namespaced bool, now time.Time) (objs []*object.Object, rv uint64, ok bool) {
	ahead := s.ahead.Load() // first, as in shown
	objs, rv, ok = s.selectIndexed(ctx, f, namespaced, now)
	if ahead != nil && ahead.rv > rv {
		return nil, 0, false
	}
	return objs, rv, ok
}

// Follow returns the view that readers are at and a watcher of all that comes after it.
func (s *Store) Follow(f *object.Filter, notify func()) (*View, *watchmux.Watcher, error) {
	s.publish.Lock() // so that the store and its mux are at the same event
	defer s.publish.Unlock()
	v := s.Latest()
	if v.rv > s.rv.Load() { // see hold: it has what is still to come up to there
		w, err := s.mux.Watch(v.rv, f, notify)
		return v, w, err
	}
	w, err := s.mux.Follow(f, notify)
	return v, w, err
}

// Confirm shows v, which was proved to be the state at rv as well, as that.
func (s *Store) Confirm(v *View, rv uint64) {
	ahead := *v
	ahead.rv = rv
	for {
		held := s.ahead.Load()
		if held != nil && held.rv >= rv {
			return
		}
		if s.ahead.CompareAndSwap(held, &ahead) {
			s.waits.reached(rv)
			return
		}
	}
}

// ConfirmUnchanged says that nothing happened between the version shown, or one below that was
// shown before, and rv.
func (s *Store) ConfirmUnchanged(rv uint64) {
	if v := s.Latest(); v.rv > s.rv.Load() {
		s.Confirm(v, rv) // the feed may not have brought all up to v yet
		return
	}
	s.Progress(rv)
}

// CompleteRV is the version up to which readers surely see every change.
func (s *Store) CompleteRV() uint64 {
	rv := s.ResumeRV()
	if ahead := s.ahead.Load(); ahead != nil {
		rv = max(rv, ahead.rv)
	}
	return rv
}

// dropAhead drops what the store has passed.
func (s *Store) dropAhead() {
	if held := s.ahead.Load(); held != nil && held.rv <= s.rv.Load() {
		s.ahead.CompareAndSwap(held, nil)
	}
}
