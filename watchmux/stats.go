package watchmux

// Stats are the figures of a Mux for metrics.
type Stats struct {
	// Watchers is the number of open watchers. Pending of them have something to read, and Lagging
	// of those have left it for longer than a second, and not to coalesce it.
	Watchers, Pending, Lagging int
	// Events and Bytes are what the ring holds, FrameBytes is the size of the encoded frames kept
	// with it.
	Events            int
	Bytes, FrameBytes int64
	// RV and Oldest are those of Mux. OldestAge is the age of the oldest event in nanoseconds, 0
	// without one.
	RV, Oldest uint64
	OldestAge  int64
	// Appended counts the events since the start, Deliveries those handed to watchers.
	Appended, Deliveries uint64
	// Stale counts the events that arrived at or below RV and were dropped. Any of them is a bug of
	// the writer.
	Stale uint64
	Ended Ended
}

// Stats reads the figures. It visits every watcher, so it is for scrapes, not for requests.
func (m *Mux) Stats() Stats {
	now := m.options.Clock()
	s := Stats{FrameBytes: m.frames.used.Load() + m.logFrames.used.Load(), Deliveries: m.deliveries.Load()}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	s.Watchers, s.Events, s.Bytes = len(m.mu.watchers), r.len(), r.bytes
	s.RV, s.Oldest, s.Ended, s.Stale = m.mu.rv, m.mu.oldest, m.mu.ended, m.mu.stale
	s.Appended = r.head
	if r.len() > 0 {
		s.OldestAge = now - r.at(r.tail).Appended
	}
	for w := range m.mu.watchers {
		if w.armed || w.cursor == r.head {
			continue
		}
		s.Pending++
		if w.lags(now) {
			s.Lagging++
		}
	}
	return s
}

// lags reports whether a watcher that has not ended has left its next event for too long. The caller
// holds mux.mu.
func (w *Watcher) lags(now int64) bool {
	r := &w.mux.mu.ring
	return !w.armed && !w.coalesces && (w.cursor < r.tail || w.cursor < r.head && now-r.at(w.cursor).Appended > int64(lagAfter))
}

// Lagging reports whether the watcher has left its next event for longer than a second.
func (w *Watcher) Lagging() bool {
	m := w.mux
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.err == nil && w.lags(now)
}
