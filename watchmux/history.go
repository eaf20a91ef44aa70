package watchmux

import "slices"

// Since returns the events above rv, oldest first. Undoing them from the last to the first leads
// from the present state to that at rv. The error is an *ExpiredError if the ring does not reach
// back to rv.
func (m *Mux) Since(rv uint64) ([]*Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rv < m.mu.oldest {
		return nil, &ExpiredError{From: rv, Oldest: m.mu.oldest}
	}
	r := &m.mu.ring
	return slices.Clone(r.events[r.after(rv)-r.tail:]), nil
}

// Between returns the events from one Position to a later one, oldest first. all is false if the
// ring has dropped some of them.
func (m *Mux) Between(from, to uint64) (events []*Event, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	return slices.Clone(r.events[max(from, r.tail)-r.tail : max(to, r.tail)-r.tail]), from >= r.tail
}
