package watchmux

import (
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// chunkEvents is how many events are copied out of the ring under one lock.
const chunkEvents = 64

// Watcher is one reader of a Mux: a cursor and a filter.
//
//	           Watch
//	             |
//	             v    Next returns max        a wake-up costs one call of notify;
//	+------> pending ---------+               while pending no event touches the
//	|            |  ^---------+               watcher
//	| notify     | Next returns fewer than max
//	|            v
//	+--------- armed          Stop, an error from Next: the end
//
// Next is for one goroutine at a time, which need not always be the same; Stop
// may be called at any time from anywhere.
type Watcher struct {
	mux    *Mux
	filter *object.Filter
	// fewTerms tells that to ask the filter costs next to nothing, see index.wake.
	fewTerms bool
	// from is the exclusive start version; future is the same if it was above that of
	// the ring, else 0: events up to it are not for this watcher.
	from, future uint64
	notify       func()
	// stopped is set by Stop and by the error that ends the watcher.
	stopped atomic.Bool
	// hurried is set when a coalescing watcher must not wait, until it has read all; behind when
	// it has come to its horizon and not to the end.
	hurried, behind atomic.Bool

	// Guarded by mux.mu:

	// cursor is the next event to read; it has no meaning while armed.
	cursor uint64
	armed  bool
	// coalesces is set by Coalesce; reading is the cursor of such a watcher, but while Next
	// may still give events back the first of those; horizon is how far it reads before it
	// says that it is Behind, 0 when it is not reading.
	coalesces        bool
	reading, horizon uint64
	// holds is said to Coalesce; held is the hold that it has not read all of, if any.
	holds bool
	held  holdSet
	// wanted is since when it would hold something, had others not begun before, 0 if it would not.
	wanted int64
	// seen is the version up to which everything was read when last pending. Who coalesces
	// has read everything up to a version only when it has come to the end.
	seen uint64
	// members are the watcher's buckets in the index; never empty until the end.
	members []membership
	// err is why the watcher ended.
	err error
}

// Next appends up to max pending deliveries to dst and returns it; more only to have
// all of one version. It does not block.
//
// rv is the version up to which the watcher has seen everything, out included: a
// bookmark may say it once out is written. It is never below the start version
// and never goes back.
//
// When fewer than max were appended the watcher is armed: notify will be called
// when there is more, perhaps before Next returns. Otherwise call Next again. One that
// coalesces may be Behind instead.
//
// The error is an *ExpiredError when the watcher has fallen off the ring, or the
// reason given to Mux.Close after everything before it was delivered; both end
// the watcher, and every later call returns the same. After Stop it is
// ErrStopped.
func (w *Watcher) Next(dst []Delivery, max int) (out []Delivery, rv uint64, err error) {
	var chunk [chunkEvents]*Event
	before := len(dst)
	out = dst
	torn, last := false, uint64(0)
	for more := true; more && (torn || len(out)-before < max); {
		var n int
		var superseded uint64
		if n, superseded, more, torn, rv, err = w.take(chunk[:], before+max-len(out), tornAt(torn, last)); err != nil {
			break
		}
		var read int
		out, read = w.read(out, chunk[:n], superseded, last, before+max)
		if read > 0 {
			last = chunk[read-1].RV
		}
		if read < n {
			torn, rv = false, w.giveBack(chunk[read], last)
		}
	}
	w.mux.deliveries.Add(uint64(len(out) - before))
	return out, rv, err
}

// read appends the deliveries that events make to out, until it has limit entries
// and those of one version are all there; read is the number of events looked at, and
// last the version of the one before events. Bit i of superseded is set when a modification
// by the i-th event is not to be told.
func (w *Watcher) read(out []Delivery, events []*Event, superseded, last uint64, limit int) (_ []Delivery, read int) {
	for i, e := range events {
		if len(out) >= limit {
			if i > 0 {
				last = events[i-1].RV
			}
			if e.RV != last {
				return out, i
			}
		}
		if !e.isAbove(w.future) {
			continue
		}
		if d, ok := e.deliver(w.filter); ok && (d.Type != api.Modified || superseded>>i&1 == 0) {
			out = append(out, d)
		}
	}
	return out, len(events)
}

// tornAt is the version of the last event if the next one has the same, else 0.
func tornAt(torn bool, last uint64) uint64 {
	if torn {
		return last
	}
	return 0
}

// take copies the next events into chunk and moves the cursor past them. When
// these reach the end of the ring, and will surely leave some of the room, it arms
// the watcher at once, and more is false. torn tells that the next event has the
// version of the last one taken, as last does of the call before unless it is 0. See read for superseded.
func (w *Watcher) take(chunk []*Event, room int, last uint64) (n int, superseded uint64, more, torn bool, rv uint64, err error) {
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
	w.reading = w.cursor
	if w.coalesces {
		w.look()
	}
	if w.coalesces && w.cursor >= m.mu.log.start {
		n, superseded, w.cursor, torn = m.mu.log.copy(chunk, w, last)
	} else {
		if w.cursor < r.tail {
			err := &ExpiredError{From: w.seen, Oldest: m.mu.oldest}
			m.end(w, err)
			m.mu.ended.Expired++
			return 0, 0, false, false, w.seen, err
		}
		n = r.copy(chunk, w.cursor)
		w.cursor += uint64(n)
		torn = w.cursor < r.head && r.at(w.cursor).RV == chunk[n-1].RV
	}
	switch {
	case w.coalesces && w.horizon <= w.cursor && w.cursor < r.head && !torn && n < room:
		w.horizon = 0
		w.hurried.Store(false)
		w.behind.Store(true)
		m.mu.log.passed(w)
		return n, superseded, false, false, w.seen, nil
	case w.cursor < r.head || n >= room && n > 0:
		if !w.coalesces {
			w.seen = max(w.seen, chunk[n-1].RV)
		}
		return n, superseded, true, torn, w.seen, nil
	}
	w.seen = max(w.seen, m.mu.rv)
	switch {
	case m.mu.closed == nil:
		if w.coalesces {
			w.hurried.Store(false)
			w.horizon, w.wanted = 0, 0
			m.mu.log.leave(w)
		}
		m.mu.index.arm(w)
		return n, superseded, false, false, w.seen, nil
	case n == 0:
		m.end(w, m.mu.closed)
		m.mu.ended.Closed++
		return 0, 0, false, false, w.seen, m.mu.closed
	default: // the reason comes at the next call
		return n, superseded, true, false, w.seen, nil
	}
}

// look sets how far a coalescing watcher reads, if it is not reading. m.mu is held.
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

// giveBack puts back the events taken from first on, after that of version rv, for which
// there was no room. The watcher is not armed then, see take.
func (w *Watcher) giveBack(first *Event, rv uint64) (seen uint64) {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	w.cursor = first.seq
	if !w.coalesces {
		w.seen = max(w.from, rv)
	}
	return w.seen
}

// Stop ends the watcher. It does not wait for a notify that is just running.
// Calls after the first do nothing.
func (w *Watcher) Stop() {
	m := w.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.err == nil {
		m.end(w, ErrStopped)
		m.mu.ended.Stopped++
	}
}

// end takes the watcher out of the Mux, whose lock is held.
func (m *Mux) end(w *Watcher, err error) {
	w.err = err
	w.stopped.Store(true)
	m.mu.index.unregister(w)
	delete(m.mu.watchers, w)
	if w.coalesces {
		m.quit(w)
	}
}
