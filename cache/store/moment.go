package store

import "github.com/kubeweir/kubeweir/watchmux"

// Moment is the state of a store, and how what becomes of it is found out: by the events of
// the mux behind position, unless recoded is another then.
type Moment struct {
	mux      *watchmux.Mux
	View     *View
	ResumeRV uint64 // see store.resume
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
// their order. complete is false when not all of them are held any more, or when they do not tell
// every change; visit may have been called nevertheless.
func (m Moment) EventsSince(earlier Moment, visit func(*watchmux.Event) error) (complete bool, err error) {
	if earlier.recoded != m.recoded {
		return false, nil
	}
	return m.mux.Between(earlier.position, m.position, visit)
}

// ChangedSince are the keys of the objects that have changed since a view was made, and
// perhaps of others; ok is false where that is not known, or where there are more than most.
func (s *Store) ChangedSince(m Mark, most int) (keys []string, ok bool) {
	if !m.known {
		return nil, false
	}
	s.publish.Lock() // so that the mux has all that the state has
	position := s.mux.Position()
	s.mu.Lock()
	recoded := s.mu.recoded
	s.mu.Unlock()
	s.publish.Unlock()
	if recoded != m.recoded || position-m.position > uint64(most) {
		return nil, false
	}
	ok, _ = s.mux.Between(m.position, position, func(ev *watchmux.Event) error {
		keys = append(keys, ev.Object.Key)
		return nil
	})
	return keys, ok
}
