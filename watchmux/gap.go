package watchmux

// InGap reports whether rv is a version whose state is not known, see Skip.
func (m *Mux) InGap(rv uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beyond(rv) > 0
}

// Skip records that the changes between RV and to are only known in sum, by the events appended
// next, the last of them at to or below, and then Progress(to). Call it before those. Watchers that
// have seen everything up to RV continue with them. But a watch cannot start strictly between RV
// and to, and watchers that wait for such a version end with an *ExpiredError.
func (m *Mux) Skip(to uint64) {
	m.mu.Lock()
	g := gap{from: m.mu.rv, to: to}
	if m.mu.closed != nil || to <= g.from+1 {
		m.mu.Unlock()
		return
	}
	m.mu.gaps = append(m.mu.gaps, g)
	var woken []*Watcher
	for w := range m.mu.watchers {
		if g.from < w.from && w.from < g.to {
			if w.armed {
				woken = append(woken, w)
			}
			m.end(w, &ExpiredError{From: w.from, Oldest: g.to})
			m.mu.ended.Expired++
		}
	}
	m.mu.Unlock()
	for _, w := range woken {
		w.notify() // Next returns the error
	}
}
