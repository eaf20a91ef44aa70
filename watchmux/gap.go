package watchmux

import "slices"

// gap is a range of versions, both ends exclusive, whose changes are not known one by one: after a
// relist, events that sum them up stand for them. The state at a version inside is unknown, so
// nobody can be told what came after it.
type gap struct{ from, to uint64 }

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

// beyond returns the end of the gap that contains rv, 0 if there is none. The caller holds m.mu.
func (m *Mux) beyond(rv uint64) uint64 {
	for _, g := range m.mu.gaps {
		if g.from < rv && rv < g.to {
			return g.to
		}
	}
	return 0
}

// forget drops the gaps that the history has left behind. The caller holds m.mu.
func (m *Mux) forget() {
	m.mu.gaps = slices.DeleteFunc(m.mu.gaps, func(g gap) bool { return g.to <= m.mu.oldest })
}
