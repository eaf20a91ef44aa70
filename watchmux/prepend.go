package watchmux

import (
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Reasons why older events are not added to the history.
var (
	// ErrMoved means that the history does not begin where the events end.
	ErrMoved = errors.New("the history begins elsewhere")
	// ErrNoRoom means that the events exceed the bounds of the history.
	ErrNoRoom = errors.New("the history has no room for older events")
)

// Room returns how many older events, and how many bytes of previous and deleted states, Prepend
// would take.
func (m *Mux) Room() (events int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	return max(0, m.options.MaxEvents-r.len()), max(0, m.options.MaxBytes-r.bytes)
}

// CanPrepend reports whether history that ends at Oldest can be prepended. It cannot while the state
// at Oldest is not known: if it is in a gap, see Skip, or if the ring has dropped only some of the
// changes of that version.
func (m *Mux) CanPrepend() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.canPrepend()
}

func (m *Mux) canPrepend() bool {
	r := &m.mu.ring
	return m.beyond(m.mu.oldest) == 0 && (r.len() == 0 || r.at(r.tail).RV > m.mu.oldest)
}

// Prepend extends the history backwards: events are all changes in the versions from (exclusive) to
// to (inclusive), oldest first, and from becomes Oldest. The caller vouches that undoing the events
// from the state at to leads to that at from. Open watchers are not affected.
//
// The previous state of an object's first event may be unknown, see Event.PrevUnknown. Since then
// fails below such an event, and watchers whose filter depends on the state cannot start there,
// until ResolvePrev was called.
//
// The error is ErrMoved if to is not Oldest any more, or if CanPrepend is false; ErrNoRoom, or the
// reason given to Close. The events belong to the ring afterwards if it is nil.
func (m *Mux) Prepend(from, to uint64, events []*Event) error {
	now := m.options.Clock()
	version := from
	var bytes int64
	last := map[string]*Event{} // by key
	for _, e := range events {
		if e.RV <= from || e.RV < version || e.RV > to {
			return fmt.Errorf("event at %d after %d is not between %d and %d", e.RV, version, from, to)
		}
		if e.PrevUnknown && (e.Type == api.Added || e.Prev != nil || last[e.Object.Key] != nil) {
			return fmt.Errorf("%s event of %s at %d has a previous state", e.Type, e.Object.Key, e.RV)
		}
		version = e.RV
		bytes += e.cost()
		last[e.Object.Key] = e
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	switch {
	case m.mu.closed != nil:
		return m.mu.closed
	case m.mu.oldest != to || from > to || !m.canPrepend():
		return ErrMoved
	case r.len()+len(events) > m.options.MaxEvents || r.bytes+bytes > m.options.MaxBytes:
		return ErrNoRoom
	}
	for i, e := range events {
		e.Appended = now
		e.shares = i > 0 && events[i-1].RV == e.RV
		e.frames.budget = &m.frames
	}
	if len(events) > 0 {
		for w := range m.mu.watchers {
			if !w.armed && w.cursor < r.tail {
				w.lost = r.tail // its number is about to be that of another event
			}
		}
		for seq := r.tail; seq < r.unknown; seq++ { // which are now known
			if e := r.at(seq); e.PrevUnknown && last[e.Object.Key] != nil {
				r.setPrev(seq, last[e.Object.Key].Object)
			}
		}
		r.prepend(events)
		m.mu.last = max(m.mu.last, version)
	}
	m.mu.oldest = from
	return nil
}

// Unresolved returns the events above rv with an unknown Prev. ambiguous says that watchers whose
// filter depends on the state cannot start at rv for that reason.
func (m *Mux) Unresolved(rv uint64) (events []*Event, ambiguous bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	first := r.resume(rv)
	for seq := first; seq < r.unknown; seq++ {
		if e := r.at(seq); e.PrevUnknown {
			events = append(events, e)
		}
	}
	return events, first < r.ambiguous
}

// ResolvePrev sets the previous states of events that Unresolved has returned. The error is
// ErrNoRoom if the states exceed the bounds of the history. Events that the ring has dropped, or
// resolved, meanwhile are ignored.
func (m *Mux) ResolvePrev(prev map[*Event]*object.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.mu.ring
	bytes := r.bytes
	for e, o := range prev {
		if r.holds(e) {
			bytes += int64(len(o.Raw))
		}
	}
	if bytes > m.options.MaxBytes {
		return ErrNoRoom
	}
	for e, o := range prev {
		if r.holds(e) {
			r.setPrev(e.seq, o)
		}
	}
	r.findUnknown()
	return nil
}
