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

// The reasons for which watchers end, besides Stop.
var (
	// ErrExpired says that the history no longer reaches back far enough. The
	// errors returned are of type *ExpiredError.
	ErrExpired = errors.New("resource version expired")
	// ErrGone is a Close reason: the history is void (the upstream was rewound,
	// the resource's definition changed); clients must list again.
	ErrGone = errors.New("history is gone")
	// ErrStopped is a Close reason: the collection is shut down.
	ErrStopped = errors.New("collection stopped")
)

// ExpiredError tells what was asked for and what there is. It is ErrExpired.
type ExpiredError struct {
	// From is the exclusive version that was asked for or reached.
	From uint64
	// Oldest is the oldest version from which a watch can start now.
	Oldest uint64
}

// Error is the message of kube-apiserver's watch cache for this case.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("too old resource version: %d (%d)", e.From, e.Oldest)
}

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// Options configure a Mux. The zero value of a bound means its default.
type Options struct {
	// MaxAge is how long an event stays in the ring at least as long as the other
	// bounds allow; default 10 min. Events are dropped when others come.
	MaxAge time.Duration
	// MaxBytes bounds the memory that the ring alone keeps alive (replaced and
	// deleted states); default 64 MiB.
	MaxBytes int64
	// MaxEvents bounds the number of events; default 102,400.
	MaxEvents int
	// MaxFrameBytes bounds the encoded frames kept with events; default 8 MiB.
	// Frames are shared by watchers that read at about the same time, so this
	// need not cover the history. Frames being made may exceed it by their size.
	MaxFrameBytes int64
	// LagAfter is how old the next unread event of a watcher must be for the
	// watcher to count as lagging; default 1 s.
	LagAfter time.Duration
	// Clock gives nanoseconds since some moment and never goes back or jumps, as the
	// time of day does; default: those since New.
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
// One goroutine, the feed, calls Start, Append, Progress, Skip and Close. All other
// methods, and those of the watchers, are safe for concurrent use.
type Mux struct {
	options Options
	// frames are those of the events of the ring, calmFrames of what only the log has.
	frames, calmFrames frameBudget
	deliveries         atomic.Uint64
	// woken is Append's list of watchers to notify, kept for its room; the feed's
	// alone.
	woken []*Watcher

	mu struct {
		// The lock is held for copying event pointers and moving watchers in the
		// index, never for encoding, calling notify or matching a backlog, nor for
		// matching one event where clients have chosen what that costs (index.wake).
		sync.Mutex
		ring ring
		// rv is the version up to which the ring knows everything; oldest is the
		// version after which it knows everything.
		rv, oldest uint64
		last       uint64 // version of the newest event there ever was
		gaps       []gap  // rising
		index      index
		log        *eventLog // nil while no watcher coalesces
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

// Start says that the history begins after rv: the version of the first sync.
// It must come before the first Append.
func (m *Mux) Start(rv uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.rv, m.mu.oldest = rv, rv
}

// appendEvents is how many events are appended under one lock: readers of other
// watchers wait for that many rounds through the index at most.
const appendEvents = 64

// Append adds events, whose RVs must not fall, and wakes the watchers that they
// concern. Events below RV are dropped, and counted in Stats.Stale: the ring has
// promised its watchers that they know everything below it. One at RV is another
// change of that version, see the package's comment. The events belong to the ring
// afterwards.
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

// notify calls the woken watchers back, on the feed's goroutine without locks.
func (m *Mux) notify(woken []*Watcher) {
	for i, w := range woken {
		if !w.stopped.Load() {
			w.notify()
		}
		woken[i] = nil
	}
}

// trim drops what the bounds do not allow. It costs what it drops.
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

// Progress says that the collection holds everything up to rv, as an upstream
// bookmark does. Lower versions are ignored.
func (m *Mux) Progress(rv uint64) {
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if rv > m.mu.rv {
		m.mu.rv = rv
	}
	m.trim(now)
}

// Close ends all watchers: they still get what the ring holds for them, then
// reason. It wakes them all. Only the first Close counts.
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

// Age is for how many nanoseconds an event of this ring has been in it.
func (m *Mux) Age(e *Event) int64 { return m.options.Clock() - e.Appended }

// RV is the version up to which the ring knows everything.
func (m *Mux) RV() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.rv
}

// Oldest is the oldest exclusive version from which a watch can start.
func (m *Mux) Oldest() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.oldest
}

// Recent reports whether n events at least came within the last window nanoseconds.
func (m *Mux) Recent(n int, window int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	return r.len() >= n && r.at(r.head-uint64(n)).Appended > m.options.Clock()-window
}

// Since visits the events above rv from the newest at the time of the call down
// to the oldest, until visit returns false: what must be undone to come from the
// present state to the one at rv. It returns an *ExpiredError when the ring does
// not reach back to rv, possibly after some visits. visit runs without locks.
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

// Position is the place behind all events so far, for Between.
func (m *Mux) Position() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ring.head
}

// Between visits the events from one Position to a later one, oldest first, until visit
// fails. whole is false when the ring has dropped some of them, possibly after some visits.
// visit runs without locks.
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

// Watch starts a watcher at the exclusive version from; one above RV is silent
// until that is passed. When several events have the version from, it gets them all,
// see the package's comment. A nil filter matches everything. It returns an
// *ExpiredError when from is older than the history or in a gap of it (see Skip),
// or the Close reason.
//
// The caller must call Next first. notify is called when Next has reached the end
// of the ring and there is something to read (or the end) again; see Watcher.
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

// Follow starts a watcher that gets what is appended from now on: for those who know
// the state at RV otherwise. It is Watch in all else.
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
		f = nil // the fast way through Event.concerns
	}
	return &Watcher{mux: m, filter: f, fewTerms: f.Terms() <= fewTerms, notify: notify}, f.Equalities()
}

// begin lets w read from cursor on, at the version from. m.mu is held.
func (m *Mux) begin(w *Watcher, terms []object.Equality, from, cursor uint64) {
	w.from, w.seen, w.cursor, w.reading = from, from, cursor, cursor
	if from > m.mu.rv {
		w.future = from
	}
	m.mu.index.register(w, terms)
	m.mu.watchers[w] = struct{}{}
}
