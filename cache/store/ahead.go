package store

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// A freshness check can prove that the current state is also the state at a version above
// AppliedRV. The watch may still bring events up to there, of objects that came and went again.
// Watchers get these events as they happened. Readers do not: at the proved version the objects are
// gone, and readers never go back to an older version. So readers are ahead of the applied state
// until the watch has passed the proved version.
//
// The version that readers have seen counts wherever versions must not go back.

// LatestRV returns the version that readers see: AppliedRV, or a higher one that was confirmed.
func (s *Store) LatestRV() uint64 {
	ahead := s.ahead.Load() // before rv: once ahead is dropped, rv has passed it
	rv := s.rv.Load()
	if ahead != nil {
		return max(rv, ahead.rv)
	}
	return rv
}

// Latest returns the snapshot at LatestRV.
func (s *Store) Latest() *Snapshot {
	ahead := s.ahead.Load() // first, as in LatestRV
	v := s.Current()
	if ahead != nil && ahead.rv > v.rv {
		return ahead
	}
	return v
}

// At returns the state at exactly rv: the latest one, a retained one, or one made by undoing
// history, which is then retained. The error is an *ExpiredError if that is no longer possible (or
// never was, between the versions around a relist), and a *TooLargeError if rv is above LatestRV.
// It must not be called from a watcher's notify.
func (s *Store) At(rv uint64, now time.Time) (*Snapshot, error) {
	if ahead := s.ahead.Load(); ahead != nil && ahead.rv == rv {
		return ahead, nil
	}
	if v, floor := s.retain.get(rv); v == nil && rv < floor {
		return nil, &ExpiredError{RV: rv, Oldest: floor}
	}
	return s.AppliedAt(rv, now)
}

// Follow returns the latest snapshot and a watcher of all events after it.
func (s *Store) Follow(f *object.Filter, notify func()) (*Snapshot, *watchmux.Watcher, error) {
	s.publish.Lock() // so that the state and the mux are at the same event
	defer s.publish.Unlock()
	v := s.Latest()
	if v.rv > s.rv.Load() { // it is ahead: it includes the events up to its version
		w, err := s.mux.Watch(v.rv, f, notify)
		return v, w, err
	}
	w, err := s.mux.Follow(f, notify)
	return v, w, err
}

// Confirm records what a freshness check has proved: that v, a snapshot of this store, is also the
// state at rv. LatestRV is at least rv from now on.
func (s *Store) Confirm(v *Snapshot, rv uint64) {
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

// ConfirmUnchanged records what a freshness check has proved: that nothing has changed up to rv
// since LatestRV or an earlier value of it.
func (s *Store) ConfirmUnchanged(rv uint64) {
	if v := s.Latest(); v.rv > s.rv.Load() {
		s.Confirm(v, rv) // the watch may not have brought all events up to v yet
		return
	}
	s.Progress(rv)
}

// CompleteRV returns the version up to which readers are certain to see every change.
func (s *Store) CompleteRV() uint64 {
	rv := s.ResumeRV()
	if ahead := s.ahead.Load(); ahead != nil {
		rv = max(rv, ahead.rv)
	}
	return rv
}
