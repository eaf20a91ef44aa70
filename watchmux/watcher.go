package watchmux

import (
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// chunkEvents is how many events are copied out of the ring under one lock.
const chunkEvents = 64

// Next appends up to max pending deliveries to dst and returns it, or more if a version has more
// changes. It does not block.
//
// rv is the version up to which the watcher has seen everything, including out: a bookmark may say
// it once out is written. It is never below the start version and never goes back.
//
// If fewer than max deliveries were appended, the watcher is armed: notify will be called when
// there are more, perhaps before Next returns. A coalescing watcher may be Behind instead.
// Otherwise call Next again.
//
// The error is an *ExpiredError if the watcher has fallen off the ring, or the reason given to
// Mux.Close after everything before it was delivered. Both end the watcher, and every later call
// returns the same. After Stop it is ErrStopped.
func (w *Watcher) Next(dst []Delivery, max int) (out []Delivery, rv uint64, err error) {
	var chunk [chunkEvents]*Event
	before := len(dst)
	out = dst
	more, partial, last := true, false, uint64(0)
	for more && (partial || len(out)-before < max) {
		var n int
		var superseded uint64
		n, superseded, more, partial, rv, err = w.take(chunk[:], before+max-len(out), last)
		for i, e := range chunk[:n] {
			last = e.RV
			if !e.isAbove(w.future) {
				continue
			}
			if d, ok := e.deliver(w.filter); ok && (d.Type != api.Modified || superseded>>i&1 == 0) {
				out = append(out, d)
			}
		}
	}
	w.mux.deliveries.Add(uint64(len(out) - before))
	return out, rv, err
}

// take copies the next events into chunk and moves the cursor past them: up to room, and then those
// of the same version, which is last if there is no room. If they reach the end of the ring and are
// certain to leave some of the room unused, it arms the watcher at once, and more is false. partial
// says that the next event has the version of the last one taken. Bit i of superseded is set if a
// modification by the i-th event must not be sent.
func (w *Watcher) take(chunk []*Event, room int, last uint64) (n int, superseded uint64, more, partial bool, rv uint64, err error) {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err != nil {
		return 0, 0, false, false, w.seen, w.err
	}
	r := &m.mu.ring
	if w.armed {
		w.seen = max(w.seen, m.mu.rv)
		return 0, 0, false, false, w.seen, nil
	}
	if w.coalesces {
		w.look()
	}
	if w.readsLog() {
		n, superseded, w.cursor, partial = m.mu.log.copy(chunk, w, room, last)
	} else {
		if w.isOff(r) {
			err := &ExpiredError{From: w.seen, Oldest: m.mu.oldest}
			m.end(w, err, &m.mu.ended.Expired)
			return 0, 0, false, false, w.seen, err
		}
		events := r.events[w.cursor-r.tail:]
		if n = copy(chunk[:max(0, min(room, len(chunk)))], events); n > 0 {
			last = chunk[n-1].RV
		}
		for ; n < len(chunk) && n < len(events) && events[n].RV == last; n++ {
			chunk[n] = events[n]
		}
		w.cursor += uint64(n)
		partial = n < len(events) && events[n].RV == last
	}
	switch {
	case w.coalesces && w.horizon <= w.cursor && w.cursor < r.head && !partial && n < room:
		w.horizon = 0
		w.mustReadNow.Store(false)
		w.behind.Store(true)
		m.mu.log.passed(w)
		return n, superseded, false, false, w.seen, nil
	case w.cursor < r.head || n >= room && n > 0:
		if !w.coalesces {
			w.seen = max(w.seen, last)
		}
		return n, superseded, true, partial, w.seen, nil
	}
	w.seen = max(w.seen, m.mu.rv)
	switch {
	case m.mu.closed == nil:
		if w.coalesces {
			w.mustReadNow.Store(false)
			w.horizon, w.wanted = 0, 0
			m.mu.log.leave(w)
		}
		m.mu.index.arm(w)
		return n, superseded, false, false, w.seen, nil
	case n == 0:
		m.end(w, m.mu.closed, &m.mu.ended.Closed)
		return 0, 0, false, false, w.seen, m.mu.closed
	default: // the next call returns the reason
		return n, superseded, true, false, w.seen, nil
	}
}

// look sets how far a coalescing watcher reads, unless it is reading. The caller holds m.mu.
func (w *Watcher) look() {
	m := w.mux
	m.mu.log.passed(w)
	if w.horizon > 0 && m.mu.closed == nil {
		return
	}
	w.horizon = m.mu.ring.head
	if w.held != 0 && m.mu.closed == nil {
		w.horizon = m.mu.log.holds[w.held.first()].end
	}
	w.behind.Store(false)
}

// readsLog reports whether a watcher coalesces and its next event is in the log. The caller holds
// m.mu.
func (w *Watcher) readsLog() bool {
	return w.coalesces && w.cursor >= max(w.mux.mu.log.start, w.prepended)
}

// isOff reports whether the next event of a watcher is not in the ring any more. The caller holds
// m.mu.
func (w *Watcher) isOff(r *ring) bool { return w.cursor < max(r.tail, w.lost) }

// Stop ends the watcher. It does not wait for a running notify. Further calls have no effect.
func (w *Watcher) Stop() {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err == nil {
		m.end(w, ErrStopped, &m.mu.ended.Stopped)
	}
}

// end removes the watcher from the Mux and counts it in one of m.mu.ended. The caller holds the
// lock.
func (m *Mux) end(w *Watcher, err error, count *uint64) {
	*count++
	w.err = err
	w.stopped.Store(true)
	m.mu.index.unregister(w)
	delete(m.mu.watchers, w)
	if w.coalesces {
		m.quit(w)
	}
}

// Watch starts a watcher at the exclusive version from. One above RV is silent until that version
// is passed. If several events have the version from, the watcher gets all of them, see the
// package's comment. A nil filter matches everything. The error is an *ExpiredError if from is
// older than the history or in a gap of it (see Skip), or if the filter needs previous states that
// are not known (see Prepend), or the reason for Close.
//
// The caller must call Next first. notify is called when Next has reached the end of the ring and
// there is something to read, or the end, again; see Watcher.
func (m *Mux) Watch(from uint64, f *object.Filter, notify func()) (*Watcher, error) {
	return m.begin(f, notify, func() (_, cursor uint64, err error) {
		if from < m.mu.oldest || m.mu.ring.isPartial(from) {
			return 0, 0, &ExpiredError{From: from, Oldest: m.mu.oldest}
		}
		if to := m.beyond(from); to > 0 {
			return 0, 0, &ExpiredError{From: from, Oldest: to}
		}
		cursor = m.mu.ring.resume(from)
		if r := &m.mu.ring; cursor < r.ambiguous && f.IsMutable() {
			return 0, 0, &ExpiredError{From: from, Oldest: r.at(r.ambiguous - 1).RV}
		}
		return from, cursor, nil
	})
}

// Follow starts a watcher that gets all events from now on, for callers that know the state at RV.
// Apart from that it is Watch.
func (m *Mux) Follow(f *object.Filter, notify func()) (*Watcher, error) {
	return m.begin(f, notify, func() (from, cursor uint64, err error) { return m.mu.rv, m.mu.ring.head, nil })
}

// begin starts a watcher at the version and the position that place returns with m.mu held.
func (m *Mux) begin(f *object.Filter, notify func(), place func() (from, cursor uint64, err error)) (*Watcher, error) {
	if f.Empty() {
		f = nil // the fast path of Filter.Matches
	}
	w := &Watcher{mux: m, filter: f, fewTerms: f.Terms() <= fewTerms, notify: notify}
	terms := f.Equalities()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed != nil {
		return nil, m.mu.closed
	}
	from, cursor, err := place()
	if err != nil {
		return nil, err
	}
	w.from, w.seen, w.cursor, w.prepended = from, from, cursor, m.mu.ring.appended
	if from > m.mu.rv {
		w.future = from
	}
	m.mu.index.register(w, terms)
	m.mu.watchers[w] = struct{}{}
	return w, nil
}
