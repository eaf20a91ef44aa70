package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
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
// nobody would tell it about the deletion. Being told twice does no harm.
//
// It follows that versions never fall and end at R, that every object passes through its states in
// their order, and that nothing is lost that the list could tell. But the events up to a version
// strictly between E and R never add up to a state that existed. Such versions are a gap: the store
// has no snapshot at them, and a watch can begin only at E or below, which then gets the events of
// the relist, or at R or above.

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
	d, err := compare(old, tree)
	if err != nil {
		return err
	}
	events, err := d.events(s.encoding, old.rv, s.ResumeRV(), rv)
	if err != nil {
		return err
	}
	if !s.enter(events, d.recoded, rv) {
		return nil
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
		// The result is the same event, except after a replacement: its successor is now known to
		// be an addition.
		events[i] = s.changeLocked(ev.Type, ev.Object)
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

// diff is the difference between the current state and a newer list.
type diff struct {
	changes []*watchmux.Event // Added and Modified
	deletes []deletion
	// recoded objects have the same version but other bytes, because a newer release of the
	// upstream encodes them differently. They get no event.
	recoded []*object.Object
}

// deletion is an object that is gone. It was deleted before the version bound.
type deletion struct {
	obj   *object.Object
	bound uint64 // 0 if only the list's version bounds it
}

// compare walks both states in key order.
func compare(old *Snapshot, tree *Tree) (*diff, error) {
	d := &diff{}
	err := (&Snapshot{tree: tree}).ChangesSince(old, func(held, now *object.Object) error {
		switch {
		case now == nil:
			d.deletes = append(d.deletes, deletion{obj: held})
		case held == nil:
			d.added(now)
		default:
			return d.same(held, now)
		}
		return nil
	})
	return d, err
}

func (d *diff) added(o *object.Object) {
	d.changes = append(d.changes, &watchmux.Event{Type: api.Added, RV: o.RV, Object: o})
}

// same compares two states of one key.
func (d *diff) same(held, now *object.Object) error {
	switch {
	case now.RV < held.RV, now.RV == held.RV && now.UID != held.UID:
		return fmt.Errorf("%w: object %s from %d to %d", ErrRewound, now.Key, held.RV, now.RV)
	case now.UID != held.UID:
		d.deletes = append(d.deletes, deletion{obj: held, bound: now.RV})
		d.added(now)
	case now.RV > held.RV:
		d.changes = append(d.changes, &watchmux.Event{Type: api.Modified, RV: now.RV, Object: now, Prev: held})
	case !bytes.Equal(held.Raw, now.Raw):
		d.recoded = append(d.recoded, now)
	}
	return nil
}

// events returns the events of the difference in the order of their versions and assigns the
// versions of the deletions. held is AppliedRV, from is ResumeRV and to is the version of the list.
func (d *diff) events(enc api.Encoding, held, from, to uint64) ([]*watchmux.Event, error) {
	byRV := func(a, b *watchmux.Event) int { return cmp.Compare(a.RV, b.RV) }
	for _, ev := range d.changes {
		if ev.RV <= from || ev.RV > to {
			return nil, fmt.Errorf("%w: object %s at %d is not between %d and %d", ErrRewound, ev.Object.Key, ev.RV, from, to)
		}
	}
	events := make([]*watchmux.Event, 0, len(d.changes)+len(d.deletes))
	for _, del := range d.deletes {
		rv, bound := held+1, to+1
		if del.bound > 0 {
			bound = del.bound
		}
		if rv >= bound {
			rv = max(from, del.obj.RV) + 1
		}
		if rv >= bound {
			return nil, fmt.Errorf("%w: no version left for the deletion of %s between %d and %d", ErrRewound, del.obj.Key, from, to)
		}
		last, err := del.obj.AtRV(enc, rv)
		if err != nil {
			return nil, err
		}
		events = append(events, &watchmux.Event{Type: api.Deleted, RV: rv, Object: last, Prev: del.obj})
	}
	events = append(events, d.changes...)
	slices.SortStableFunc(events, byRV) // stable: deletions stay first
	return events, nil
}
