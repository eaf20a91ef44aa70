package watchmux

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/object"
)

// Reasons why watchers end, besides Stop.
var (
	// ErrExpired says that the history does not reach back far enough. Returned errors are of type
	// *ExpiredError.
	ErrExpired = errors.New("resource version expired")
	// ErrGone is a reason for Close: the history is void, for example because the upstream's
	// version went back, and clients must list again.
	ErrGone = errors.New("history is gone")
	// ErrStopped is a reason for Close: the collection has stopped.
	ErrStopped = errors.New("collection stopped")
)

// ExpiredError is an ErrExpired with the versions.
type ExpiredError struct {
	// From is the exclusive version that was requested or reached.
	From uint64
	// Oldest is the oldest version from which a watch can start now.
	Oldest uint64
}

// Error returns the message of kube-apiserver's watch cache for this case.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.From, e.Oldest)
}

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// Options configure a Mux. The zero value of a bound means its default.
type Options struct {
	// MaxAge is the minimum time that an event stays in the ring, as far as the other bounds allow;
	// default 10 min. Events are only dropped when others arrive.
	MaxAge time.Duration
	// MaxBytes bounds the memory that only the ring keeps alive, that is, replaced and deleted
	// states; default 64 MiB.
	MaxBytes int64
	// MaxEvents bounds the number of events; default 102,400.
	MaxEvents int
	// MaxFrameBytes bounds the encoded frames that are kept with events; default 8 MiB. Watchers
	// that read at about the same time share frames, so this need not cover the history. Frames
	// that are being made may exceed it.
	MaxFrameBytes int64
	// LagAfter is how old the next unread event of a watcher must be for the watcher to count as
	// lagging; default 1 s.
	LagAfter time.Duration
	// Clock returns nanoseconds since some moment. Unlike the time of day it must not jump.
	// Default: nanoseconds since New.
	Clock func() int64
}

func (o Options) withDefaults() Options {
	setDefault(&o.MaxAge, defaults.HistoryAge)
	setDefault(&o.MaxBytes, defaults.HistoryBytes)
	setDefault(&o.MaxEvents, defaults.HistoryEvents)
	setDefault(&o.MaxFrameBytes, 8<<20)
	setDefault(&o.LagAfter, time.Second)
	if o.Clock == nil {
		begun := time.Now()
		o.Clock = func() int64 { return int64(time.Since(begun)) }
	}
	return o
}

func setDefault[T time.Duration | int64 | int](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Mux is the ring and the watchers of one collection.
//
// One goroutine at a time, the writer, calls Start, Append, Progress, Skip and Close. All other
// methods, and those of watchers, are safe for concurrent use.
type Mux struct {
	options Options
	// frames are those of the events in the ring, calmFrames those of events that only the log has.
	frames, calmFrames frameBudget
	deliveries         atomic.Uint64
	// woken is Append's list of watchers to notify, which belongs to the writer and reuses its
	// memory.
	woken []*Watcher

	mu struct {
		// The lock is held for copying event pointers and moving watchers in the index. It is never
		// held for encoding, calling notify, matching a backlog, or matching a single event at a
		// cost that clients have chosen (index.wake).
		sync.Mutex
		ring ring
		// rv is the version up to which the ring is complete, oldest the version after which it is.
		rv, oldest uint64
		last       uint64 // version of the newest event ever
		gaps       []gap  // ascending
		index      index
		log        *eventLog // nil without coalescing watchers
		watchers   map[*Watcher]struct{}
		closed     error
		// stale counts the events that Append dropped.
		stale uint64
		ended Ended
	}
}

// New returns an empty Mux. Its history begins at version 0; see Start.
func New(o Options) *Mux {
	m := &Mux{options: o.withDefaults()}
	m.frames.max, m.calmFrames.max = m.options.MaxFrameBytes, m.options.MaxFrameBytes
	m.mu.watchers = map[*Watcher]struct{}{}
	return m
}

// Start says that the history begins after rv, the version of the first list. It must be called
// before the first Append.
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
	for len(events) > 0 {
		n := min(len(events), appendEvents)
		m.append(events[:n], now)
		events = events[n:]
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
		woken = m.mu.index.wake(e, e.seq, woken)
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

// trim drops what exceeds the bounds. Its cost is that of what it drops.
func (m *Mux) trim(now int64) {
	r := &m.mu.ring
	expired := now - int64(m.options.MaxAge)
	for r.len() > 0 {
		if r.len() <= m.options.MaxEvents && r.bytes <= m.options.MaxBytes && r.at(r.tail).Appended > expired {
			break
		}
		e := r.pop()
		m.mu.oldest = e.RV
		if m.mu.log != nil {
			m.mu.log.outlive(e)
		}
	}
	m.forget()
	for r.frames < r.head && m.frames.used.Load() > m.frames.max/2 {
		r.at(r.frames).frames.retire()
		r.frames++
	}
}

// Progress says that the collection is complete up to rv, as an upstream bookmark does. It ignores
// versions below RV.
func (m *Mux) Progress(rv uint64) {
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if rv > m.mu.rv {
		m.mu.rv = rv
	}
	m.trim(now)
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
			w.cursor, w.reading = m.mu.ring.head, m.mu.ring.head
			woken = append(woken, w)
		case w.coalesces:
			woken = w.hurry(woken)
		}
	}
	m.mu.Unlock()
	m.notify(woken)
}

// Age returns for how many nanoseconds an event has been in the ring.
func (m *Mux) Age(e *Event) int64 { return m.options.Clock() - e.Appended }

// RV returns the version up to which the ring is complete.
func (m *Mux) RV() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.rv
}

// Oldest returns the oldest exclusive version from which a watch can start.
func (m *Mux) Oldest() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.oldest
}

// Recent reports whether at least n events arrived within the last window nanoseconds.
func (m *Mux) Recent(n int, window int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	return r.len() >= n && r.at(r.head-uint64(n)).Appended > m.options.Clock()-window
}

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

// Position returns the position behind all events so far, for Between.
func (m *Mux) Position() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ring.head
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

// Watch starts a watcher at the exclusive version from. One above RV is silent until that version
// is passed. If several events have the version from, the watcher gets all of them, see the
// package's comment. A nil filter matches everything. The error is an *ExpiredError if from is
// older than the history or in a gap of it (see Skip), or the reason for Close.
//
// The caller must call Next first. notify is called when Next has reached the end of the ring and
// there is something to read, or the end, again; see Watcher.
func (m *Mux) Watch(from uint64, f *object.Filter, notify func()) (*Watcher, error) {
	w, terms := m.newWatcher(f, notify)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed != nil {
		return nil, m.mu.closed
	}
	if from < m.mu.oldest || m.mu.ring.isTorn(from) {
		return nil, &ExpiredError{From: from, Oldest: m.mu.oldest}
	}
	if to := m.beyond(from); to > 0 {
		return nil, &ExpiredError{From: from, Oldest: to}
	}
	m.begin(w, terms, from, m.mu.ring.resume(from))
	return w, nil
}

// Follow starts a watcher that gets all events from now on, for callers that know the state at RV.
// Apart from that it is Watch.
func (m *Mux) Follow(f *object.Filter, notify func()) (*Watcher, error) {
	w, terms := m.newWatcher(f, notify)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed != nil {
		return nil, m.mu.closed
	}
	m.begin(w, terms, m.mu.rv, m.mu.ring.head)
	return w, nil
}

func (m *Mux) newWatcher(f *object.Filter, notify func()) (*Watcher, []object.Equality) {
	if f.Empty() {
		f = nil // the fast path of Event.concerns
	}
	return &Watcher{mux: m, filter: f, fewTerms: f.Terms() <= fewTerms, notify: notify}, f.Equalities()
}

// begin makes w read from cursor on, at the version from. The caller holds m.mu.
func (m *Mux) begin(w *Watcher, terms []object.Equality, from, cursor uint64) {
	w.from, w.seen, w.cursor, w.reading = from, from, cursor, cursor
	if from > m.mu.rv {
		w.future = from
	}
	m.mu.index.register(w, terms)
	m.mu.watchers[w] = struct{}{}
}
