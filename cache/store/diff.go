package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// A relist finds the state at a version R, without the events since the version E that the store
// holds. The difference becomes events, so that watches continue. Their versions are chosen as
// follows.
//
//   - An object that is new or has changed carries the version of its last change, which becomes
//     its event's version. It is above E, or the store would hold it (or it is E itself while
//     changes of E may be missing), and at most R.
//   - The version of a deletion is unknown. It is in the same range, above that of the deleted
//     object, and below that of its successor if there is one (same key, another uid). All
//     deletions get the lowest version above E, as etcd gives all deletions of one transaction the
//     same version. If there is none, they get E itself while changes of E may be missing. If that
//     does not fit either, the source's versions contradict each other.
//
// Why the lowest: a watcher that has received some change of the relist must not still hold an
// object that was deleted before that change. If its client continued elsewhere from that version,
// it would never learn of the deletion. Learning of it twice does no harm.
//
// It follows that versions never fall and end at R, that every object passes through its states in
// their order, and that every difference that the list shows becomes an event. But the events up to
// a version strictly between E and R never add up to a state that existed. Such versions are a gap:
// the store has no snapshot at them, and a watch can begin only at E or below, which then gets the
// events of the relist, or at R or above.

// Replace makes the objects of tree the state at rv and sends the difference as events. The error
// wraps ErrRewound if the list cannot be a successor of the current state, and ErrOutOfOrder if a
// freshness check has meanwhile confirmed a version above rv.
func (s *Store) Replace(tree *Tree, rv uint64) error {
	s.publish.Lock()
	defer s.publish.Unlock()
	// Only the holder of publish changes the state, so comparing it does not need mu.
	old := s.Current()
	if rv < old.rv {
		return fmt.Errorf("%w: listed at %d, already seen at %d", ErrOutOfOrder, rv, old.rv)
	}
	events, recoded, err := s.diff(old, tree, rv)
	if err != nil || !s.enter(events, recoded, rv) {
		return err
	}
	s.mux.Skip(rv)
	s.mux.Append(events...)
	s.mux.Progress(rv)
	s.waits.reached(rv)
	for _, ev := range events {
		if ev.Prev != nil {
			s.waits.changed(ev.Prev.Key)
		}
	}
	return nil
}

// enter applies the events of a relist to the state. It returns false if the store is closed.
func (s *Store) enter(events []*watchmux.Event, recoded []*object.Object, rv uint64) bool {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return false
	}
	if len(events) > 0 && events[0].RV == s.mu.rv {
		s.markPartialLocked()
	}
	for i, ev := range events {
		events[i] = s.changeLocked(ev.Type, ev.Object) // which knows what was there before
	}
	if len(recoded) > 0 {
		s.mu.recoded++
	}
	for _, o := range recoded {
		prev, _ := s.mu.tree.Set(o)
		s.replacedLocked(prev, o)
	}
	s.advanceLocked(rv, len(events)+len(recoded) > 0)
	s.mu.completeRV = rv
	churn := s.mu.churn
	s.mu.Unlock()
	s.grown(churn)
	return true
}

// diff returns the events that lead from the state old to that of tree, in the order of their
// versions, Deleted ones and others. recoded are the objects that have the same version but other
// bytes, because a newer release of the upstream encodes them differently. They get no event.
func (s *Store) diff(old *Snapshot, tree *Tree, to uint64) (events []*watchmux.Event, recoded []*object.Object, err error) {
	from := s.ResumeRV()
	var deletions []*watchmux.Event
	changed := func(now *object.Object) error {
		if now.RV <= from || now.RV > to {
			return fmt.Errorf("%w: object %s at %d is not between %d and %d", ErrRewound, now.Key, now.RV, from, to)
		}
		events = append(events, &watchmux.Event{Type: api.Modified, RV: now.RV, Object: now})
		return nil
	}
	deleted := func(held *object.Object, before uint64) error {
		rv := old.rv + 1
		if rv >= before {
			rv = max(from, held.RV) + 1
		}
		if rv >= before {
			return fmt.Errorf("%w: no version left for the deletion of %s between %d and %d", ErrRewound, held.Key, from, to)
		}
		last, err := held.AtRV(s.encoding, rv)
		deletions = append(deletions, &watchmux.Event{Type: api.Deleted, RV: rv, Object: last})
		return err
	}
	err = (&Snapshot{tree: tree}).ChangesSince(old, func(held, now *object.Object) error {
		switch {
		case now == nil:
			return deleted(held, to+1)
		case held == nil:
			return changed(now)
		case now.RV < held.RV, now.RV == held.RV && now.UID != held.UID:
			return fmt.Errorf("%w: object %s from %d to %d", ErrRewound, now.Key, held.RV, now.RV)
		case now.UID != held.UID:
			if err := changed(now); err != nil {
				return err
			}
			return deleted(held, now.RV)
		case now.RV > held.RV:
			return changed(now)
		case !bytes.Equal(held.Raw, now.Raw):
			recoded = append(recoded, now)
		}
		return nil
	})
	events = append(deletions, events...)
	// Stable, so that deletions stay first.
	slices.SortStableFunc(events, func(a, b *watchmux.Event) int { return cmp.Compare(a.RV, b.RV) })
	return events, recoded, err
}
