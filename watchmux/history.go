package watchmux

// Since visits the events above rv, from the newest at the time of the call down to the oldest,
// until visit returns false: what must be undone to get from the present state to that at rv. It
// returns an *ExpiredError, possibly after some visits, if the ring does not reach back to rv.
// visit runs without locks.
func (m *Mux) Since(rv uint64, visit func(*Event) bool) error {
	var chunk [chunkEvents]*Event
	m.mu.Lock()
	next := m.mu.ring.head
	m.mu.Unlock()
	for {
		m.mu.Lock()
		if rv < m.mu.oldest {
			err := &ExpiredError{From: rv, Oldest: m.mu.oldest}
			m.mu.Unlock()
			return err
		}
		r := &m.mu.ring
		first := r.after(rv)
		if next <= first {
			m.mu.Unlock()
			return nil
		}
		start := max(first, next-min(next, chunkEvents))
		n := r.copy(chunk[:next-start], start)
		m.mu.Unlock()
		for i := n - 1; i >= 0; i-- {
			if !visit(chunk[i]) {
				return nil
			}
		}
		next = start
	}
}

// Between visits the events from one Position to a later one, oldest first, until visit fails.
// whole is false if the ring has dropped some of them, possibly after some visits. visit runs
// without locks.
func (m *Mux) Between(from, to uint64, visit func(*Event) error) (whole bool, err error) {
	var chunk [chunkEvents]*Event
	for from < to {
		m.mu.Lock()
		if from < m.mu.ring.tail {
			m.mu.Unlock()
			return false, nil
		}
		n := m.mu.ring.copy(chunk[:min(chunkEvents, to-from)], from)
		m.mu.Unlock()
		for _, e := range chunk[:n] {
			if err := visit(e); err != nil {
				return true, err
			}
		}
		from += uint64(n)
	}
	return true, nil
}
