package watchmux

import "slices"

// Start begins the history after rv, the version of the first list. It must be called before the
// first Append.
func (m *Mux) Start(rv uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.rv, m.mu.oldest = rv, rv
}

// appendEvents is how many events are appended under one lock, which bounds how long readers wait
// for the index.
const appendEvents = 64

// Append adds events, whose RVs must not fall, and wakes the watchers that they concern. Events
// below RV are dropped and counted in Stats.Stale, because the ring has promised its watchers that
// it is complete up to RV. An event at RV is another change of that version, see the package's
// comment. The events belong to the ring afterwards.
func (m *Mux) Append(events ...*Event) {
	now := m.options.Clock()
	for chunk := range slices.Chunk(events, appendEvents) {
		m.append(chunk, now)
	}
}

func (m *Mux) append(events []*Event, now int64) {
	m.mu.Lock()
	if m.mu.closed != nil {
		m.mu.Unlock()
		return
	}
	woken := m.woken[:0]
	for _, e := range events {
		if e.RV < m.mu.rv {
			m.mu.stale++
			continue
		}
		e.Appended = now
		e.shares = e.RV == m.mu.last
		m.mu.last = e.RV
		e.frames.budget = &m.frames
		m.mu.rv = e.RV
		e.seq = m.mu.ring.head
		m.mu.ring.push(e)
		if m.mu.log != nil {
			m.mu.log.add(e)
		}
		woken = m.mu.index.wake(e, woken)
	}
	m.trim(now)
	woken = m.tidyLog(woken)
	m.mu.Unlock()
	m.notify(woken)
	m.woken = woken
}

// notify calls the woken watchers back, on the writer's goroutine and without locks.
func (m *Mux) notify(woken []*Watcher) {
	for i, w := range woken {
		if !w.stopped.Load() {
			w.notify()
		}
		woken[i] = nil
	}
}

// trim drops events that exceed the bounds. Its cost is proportional to the number of dropped
// events.
func (m *Mux) trim(now int64) {
	r := &m.mu.ring
	expired := now - int64(m.options.MaxAge)
	for r.len() > 0 && (r.len() > m.options.MaxEvents || r.bytes > m.options.MaxBytes || r.at(r.tail).Appended <= expired) {
		e := r.pop()
		m.mu.oldest = e.RV
		if m.mu.log != nil {
			m.mu.log.outlive(e)
		}
	}
	// The history has left these behind.
	m.mu.gaps = slices.DeleteFunc(m.mu.gaps, func(g gap) bool { return g.to <= m.mu.oldest })
	for r.frames < r.head && m.frames.used.Load() > m.frames.max/2 {
		r.at(r.frames).frames.retire()
		r.frames++
	}
}

// Progress records that the collection is complete up to rv, as an upstream bookmark says. It
// ignores versions below RV.
func (m *Mux) Progress(rv uint64) {
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if rv > m.mu.rv {
		m.mu.rv = rv
	}
	m.trim(now)
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
			m.end(w, &ExpiredError{From: w.from, Oldest: g.to}, &m.mu.ended.Expired)
		}
	}
	m.mu.Unlock()
	for _, w := range woken {
		w.notify() // Next returns the error
	}
}

// Close ends all watchers: they get what the ring holds for them, then reason. It wakes all of
// them. Only the first call has an effect.
func (m *Mux) Close(reason error) {
	m.mu.Lock()
	if m.mu.closed != nil {
		m.mu.Unlock()
		return
	}
	m.mu.closed = reason
	var woken []*Watcher
	for w := range m.mu.watchers {
		switch {
		case w.armed:
			m.mu.index.disarm(w)
			w.cursor = m.mu.ring.head
			woken = append(woken, w)
		case w.coalesces:
			woken = w.wakeNow(woken)
		}
	}
	m.mu.Unlock()
	m.notify(woken)
}
