package store

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
