package store

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// AppliedAt is At for the state that was applied, whatever readers see ahead of it, and however old
// the version is.
func (s *Store) AppliedAt(rv uint64, now time.Time) (*Snapshot, error) {
	if v := s.Current(); v.rv == rv {
		return v, nil
	}
	if v, _ := s.retain.get(rv); v != nil {
		return v, nil
	}
	// The state may have an event that the mux is about to get. While publish is held they agree,
	// so that undoing does not miss the event.
	s.publish.Lock()
	head := s.Current()
	unknown := s.mux.InGap(rv)
	oldest := s.mux.Oldest()
	s.publish.Unlock()
	switch {
	case rv == head.rv:
		return head, nil
	case rv > head.rv:
		return nil, &TooLargeError{RV: rv, Current: head.rv}
	case unknown || rv < oldest:
		return nil, &ExpiredError{RV: rv, Oldest: oldest}
	}
	return s.undo(head, rv, now)
}

// undo makes the snapshot at rv from a later one and retains it, because a chunked list that needed
// it will need it again.
func (s *Store) undo(head *Snapshot, rv uint64, now time.Time) (*Snapshot, error) {
	// Only one at a time: copying a tree marks its nodes as shared, and callers that wait for the
	// same version find it made.
	s.retain.undo.Lock()
	defer s.retain.undo.Unlock()
	if v, _ := s.retain.get(rv); v != nil {
		return v, nil
	}
	base := s.retain.above(rv, head)
	v := new(Snapshot)
	*v = *base
	v.rv = rv
	events, err := s.mux.Since(rv)
	if err != nil {
		return nil, &ExpiredError{RV: rv, Oldest: s.mux.Oldest()}
	}
	for _, ev := range slices.Backward(events) {
		if ev.RV > base.rv {
			continue
		}
		if v.content == base.content {
			v.content, v.mark = s.Contents.Add(1), Mark{}
			v.tree = base.tree.Copy()
			for key, tree := range base.shards {
				if tree != nil {
					v.shards[key] = tree.Copy()
				}
			}
		}
		v.undo(ev)
	}
	s.retain.put(v, head.rv, now)
	return v, nil
}

// undo reverts an event. The snapshot may not include it, if it is one of several events of the
// snapshot's version and arrived after the snapshot was taken.
func (v *Snapshot) undo(ev *watchmux.Event) {
	v.churn -= nodeCost
	var replaced *object.Object
	if ev.Prev == nil {
		replaced, _ = v.tree.Delete(ev.Object)
	} else {
		v.churn -= int64(len(ev.Prev.Raw))
		v.bytes += int64(len(ev.Prev.Raw))
		replaced, _ = v.tree.Set(ev.Prev)
	}
	if replaced != nil {
		v.bytes -= int64(len(replaced.Raw))
	}
	for key, tree := range v.shards {
		if tree != nil {
			v.churn -= nodeCost
			hashBy(shard.Key(key)).replace(tree, replaced, ev.Prev)
		}
	}
}

// ChangedSince returns the keys of all objects that have changed since the snapshot with the mark m
// was taken. Some of the keys may not have changed. ok is false if the changes are not known, or if
// there are more than most.
func (s *Store) ChangedSince(m Mark, most int) (keys []string, ok bool) {
	if !m.IsKnown {
		return nil, false
	}
	s.publish.Lock() // so that the mux has all events that the state shows
	position := s.mux.Position()
	s.mu.Lock()
	recoded := s.mu.recoded
	s.mu.Unlock()
	s.publish.Unlock()
	if recoded != m.recoded || position-m.position > uint64(most) {
		return nil, false
	}
	events, ok := s.mux.Between(m.position, position)
	for _, ev := range events {
		keys = append(keys, ev.Object.Key)
	}
	return keys, ok
}
