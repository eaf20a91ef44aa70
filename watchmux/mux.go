package watchmux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Reasons why watchers end, besides that of Close.
var (
	// ErrExpired means that the history does not reach back far enough. Returned errors are of type
	// *ExpiredError.
	ErrExpired = errors.New("resource version expired")
	// ErrStopped means that the reader called Stop.
	ErrStopped = errors.New("watcher stopped")
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
	// Clock returns nanoseconds since some moment. Unlike the time of day it must not jump.
	// Default: nanoseconds since New.
	Clock func() int64
}

func (o Options) withDefaults() Options {
	o.MaxAge = cmp.Or(o.MaxAge, defaults.HistoryAge)
	o.MaxBytes = cmp.Or(o.MaxBytes, defaults.HistoryBytes)
	o.MaxEvents = cmp.Or(o.MaxEvents, defaults.HistoryEvents)
	o.MaxFrameBytes = cmp.Or(o.MaxFrameBytes, 8<<20)
	if o.Clock == nil {
		begun := time.Now()
		o.Clock = func() int64 { return int64(time.Since(begun)) }
	}
	return o
}

// lagAfter is how old the next unread event of a watcher must be for the watcher to count as
// lagging.
const lagAfter = time.Second

// Mux is the ring and the watchers of one collection.
//
// One goroutine at a time, the writer, calls Start, Append, Progress, Skip and Close. All other
// methods, Prepend among them, and those of watchers, are safe for concurrent use.
type Mux struct {
	options Options
	// frames bounds the frames of the events in the ring, logFrames those of events that only the
	// log has.
	frames, logFrames frameBudget
	deliveries        atomic.Uint64
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
	m.frames.max, m.logFrames.max = m.options.MaxFrameBytes, m.options.MaxFrameBytes
	m.mu.ring = newRing()
	m.mu.watchers, m.mu.index.labels = map[*Watcher]struct{}{}, map[string]values{}
	return m
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

// Recent reports whether at least n events were appended within the last window nanoseconds.
func (m *Mux) Recent(n int, window int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	return r.head-max(r.tail, r.appended) >= uint64(n) && r.at(r.head-uint64(n)).Appended > m.options.Clock()-window
}

// Position returns the position behind all events so far, for Between.
func (m *Mux) Position() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ring.head
}

// Since returns the events above rv, oldest first. Undoing them from the last to the first leads
// from the present state to that at rv. The error is an *ExpiredError if the ring does not reach
// back to rv, or if the previous state of one of the events is not known.
func (m *Mux) Since(rv uint64) ([]*Event, error) {
	events, err := m.Above(rv)
	for _, e := range slices.Backward(events) {
		if e.PrevUnknown {
			return nil, &ExpiredError{From: rv, Oldest: e.RV}
		}
	}
	return events, err
}

// Above returns the events above rv like Since, including those whose previous state is unknown.
func (m *Mux) Above(rv uint64) ([]*Event, error) {
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
	first := max(r.tail, r.appended)
	return slices.Clone(r.events[max(from, first)-r.tail : max(to, first)-r.tail]), from >= first
}

// InGap reports whether rv is a version whose state is not known, see Skip.
func (m *Mux) InGap(rv uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beyond(rv) > 0
}

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
// Next may be called by one goroutine at a time, Stop at any time by any goroutine.
type Watcher struct {
	mux    *Mux
	filter *object.Filter
	// fewTerms is true if evaluating the filter costs next to nothing, see index.wake.
	fewTerms bool
	// from is the exclusive start version. future is the same if it was above that of the ring,
	// else 0: events up to it are not for this watcher.
	from, future uint64
	notify       func()
	// stopped is set by Stop and by the error that ends the watcher.
	stopped atomic.Bool
	// mustReadNow is set when a coalescing watcher must not wait, until it has read everything.
	// behind is set when it has reached its horizon but not the end.
	mustReadNow, behind atomic.Bool

	// The following fields are guarded by mux.mu.

	// cursor is the position of the next event to read. It has no meaning while armed.
	cursor uint64
	armed  bool
	// Positions of the watcher below prepended are positions of prepended events, which are only in
	// the ring. Positions below lost are those of events that the ring had dropped when others were
	// prepended.
	prepended, lost uint64
	// coalesces is set by Coalesce. horizon is how far such a watcher reads before it says that it
	// is Behind, 0 while it is not reading.
	coalesces bool
	horizon   uint64
	// holds is what Coalesce was called with. held is the hold that the watcher has not read
	// completely, if any.
	holds bool
	held  holdSet
	// wanted is since when the watcher would hold something if others had not begun before, 0 if it
	// would not.
	wanted int64
	// seen is the version up to which everything was read when last pending. A coalescing watcher
	// has read everything up to a version only when it has reached the end.
	seen uint64
	// members are the watcher's buckets in the index, never empty until the end.
	members []membership
	// err is why the watcher ended.
	err error
}

// index finds the armed watchers that an event may concern. Every watcher is registered under one
// equality term of its filter (one bucket per value), or in rest if it has none. Armed watchers are
// in those buckets. It is guarded by Mux.mu.
type index struct {
	rest   bucket
	slots  []values // by term.slot; nil if unused
	labels map[string]values
}

// term is what a watcher is registered under: a label or, if that is "", a slot.
type term struct {
	slot  int
	label string
}

// The slots of terms. Those of the selectable fields follow, in the order of Schema.Fields.
const (
	keySlot  = iota // one object, "namespace/name"
	nameSlot        // one name in any namespace
	namespaceSlot
	fieldSlots
)

// values are the buckets of one term.
type values map[string]*bucket

// bucket holds the watchers that are registered under one value.
type bucket struct {
	armed      []place
	registered int
	term
	value string
}

// place is one armed watcher and the number of this bucket among the watcher's.
type place struct {
	watcher *Watcher
	number  int
}

// membership is the watcher's side of a place: a bucket, and the position in it.
type membership struct {
	bucket *bucket
	pos    int
}

// eventLog is what coalescing watchers read instead of the ring: the events since start, without
// modifications that a later event of the same object supersedes. It holds one event per modified
// object, however often the object was modified, so that a watcher can wait for long. The ring
// holds every event with the state that it replaced; under load it reaches back only seconds.
//
// Only modifications are superseded. Watchers receive every addition and deletion, also if the
// object has only entered or left their selection. A modification that leaves labels and selectable
// fields unchanged is a modification for every watcher that it concerns. It is dropped when it is
// superseded. Any other modification is an addition or deletion for some watchers. It stays, and
// watchers for which it is neither skip it.
//
// The log exists while there are coalescing watchers, and otherwise costs nothing. It is guarded by
// Mux.mu.
type eventLog struct {
	entries []entry // ascending by seq; rv never falls
	start   uint64
	bytes   int64
	readers map[*Watcher]struct{}
	// The log is tidied when it has so many entries, or so many bytes.
	dueLen   int
	dueBytes int64
	// holds are the holds of watchers, held the set of those in use.
	holds [maxHolds]hold
	held  holdSet
	// frames is the budget of events that the ring has dropped.
	frames *frameBudget
}

// entry is an event in the log. A dropped one has no event.
type entry struct {
	seq, rv uint64
	event   *Event
	cost    int64
	// superseded is set if the event is not plain, light if the event belongs to the log alone.
	superseded, light bool
	// held are the holds for which it is kept although it was superseded.
	held holdSet
}

const (
	// maxHolds is the maximum number of holds. If there are as many, one from which nothing was
	// read for stuckAfter makes room for another.
	maxHolds   = 4
	stuckAfter = 10 * time.Second
	// aloneAfter is how long a watcher waits for those that hold something, to share its rounds
	// with them.
	aloneAfter = 2 * time.Second
)

// hold is a set of held events, guarded by Mux.mu.
type hold struct {
	// end is the position behind the last event, rv the version up to which nothing is missing.
	// since is when the hold began, moved when one of its readers last used it.
	end, rv      uint64
	since, moved int64
	// readers is the number of watchers that have not reached the end. Without them there is no
	// hold.
	readers int
}

// holdSet is a set of indexes in eventLog.holds.
type holdSet uint8

// gap is a range of versions, both ends exclusive, whose changes are not known one by one: after a
// relist, events that sum them up stand for them. The state at a version inside is unknown, so a
// watch cannot start there.
type gap struct{ from, to uint64 }

// Ended counts the watchers that have ended, by reason.
type Ended struct {
	// Stopped by their reader, Expired off the ring, Closed with the Mux.
	Stopped, Expired, Closed uint64
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

// Stats are the figures of a Mux for metrics.
type Stats struct {
	// Watchers is the number of open watchers. Pending of them have something to read, and Lagging
	// of those have left it for longer than a second, and not to coalesce it.
	Watchers, Pending, Lagging int
	// Events and Bytes are what the ring holds, FrameBytes is the size of the encoded frames kept
	// with it.
	Events            int
	Bytes, FrameBytes int64
	// RV and Oldest have the same meaning as in Mux. OldestAge is the age of the oldest event in
	// nanoseconds, 0 without one; prepended events count only if there are no others.
	RV, Oldest uint64
	OldestAge  int64
	// Appended counts the events since the start, without prepended ones, Deliveries those handed to
	// watchers.
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
	s.Appended = r.head - firstSeq
	if r.len() > 0 {
		s.OldestAge = now - r.at(min(max(r.tail, r.appended), r.head-1)).Appended
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

// lags reports whether a watcher that has not ended has left its next event for too long. The
// caller holds mux.mu.
func (w *Watcher) lags(now int64) bool {
	r := &w.mux.mu.ring
	return !w.armed && !w.coalesces && (w.isOff(r) || w.cursor < r.head && now-r.at(w.cursor).Appended > int64(lagAfter))
}

// Lagging reports whether the watcher has left its next event for longer than a second.
func (w *Watcher) Lagging() bool {
	m := w.mux
	now := m.options.Clock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.err == nil && w.lags(now)
}
