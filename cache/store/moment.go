package store

import "github.com/kubeweir/kubeweir/watchmux"

// Moment is a state together with its place among the events of its store, so that later changes
// can be found by the events.
type Moment struct {
	mux      *watchmux.Mux
	Snapshot *Snapshot
	ResumeRV uint64 // see Store.ResumeRV
	position uint64
	recoded  int
}

func (s *Store) Moment() Moment {
	s.publish.Lock() // so that the state and the mux are at the same event
	defer s.publish.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Moment{s.mux, s.currentLocked(), s.resumeLocked(), s.mux.Position(), s.mu.recoded}
}

// EventsSince calls visit for the events between an earlier moment of the same store and m, in
// order. complete is false if the history no longer holds all of them, or if some changes have no
// event; visit may have been called nevertheless.
func (m Moment) EventsSince(earlier Moment, visit func(*watchmux.Event) error) (complete bool, err error) {
	if earlier.recoded != m.recoded {
		return false, nil
	}
	events, complete := m.mux.Between(earlier.position, m.position)
	if !complete {
		return false, nil
	}
	for _, ev := range events {
		if err := visit(ev); err != nil {
			return true, err
		}
	}
	return true, nil
}

// ChangedSince returns the keys of all objects that have changed since the snapshot with the mark m
// was taken. Some of the keys may not have changed. ok is false if the changes are not known, or if
// there are more than most.
func (s *Store) ChangedSince(m Mark, most int) (keys []string, ok bool) {
	if !m.known {
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
