package watchmux

import (
	"sort"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// ring holds the newest events, and older ones that were prepended. Each has a sequence number, and the ring holds those in [tail,
// head). Its memory follows its content: append moves the events once there is no room behind them,
// and pop once most of the memory is that of dropped ones. It is guarded by Mux.mu.
type ring struct {
	events     []*Event
	popped     int // places of dropped events in the memory of events
	tail, head uint64
	bytes      int64
	// frames is the position, in [tail, head], of the first event whose frames are kept.
	frames uint64
	// appended is the position of the first event that was appended, not prepended, unless the ring
	// has dropped it. Numbers below appended may have belonged to other events before. unknown is the
	// position behind the last event with PrevUnknown, ambiguous that behind the last one of those that
	// is not a deletion.
	appended, unknown, ambiguous uint64
}

// firstSeq is the number of the first event appended to a ring. Prepended events count down from
// there, and never reach 0.
const firstSeq = 1 << 40

func newRing() ring {
	return ring{tail: firstSeq, head: firstSeq, frames: firstSeq, appended: firstSeq}
}

func (r *ring) len() int { return len(r.events) }

func (r *ring) at(seq uint64) *Event { return r.events[seq-r.tail] }

// holds reports whether the event is in the ring.
func (r *ring) holds(e *Event) bool { return e.seq >= r.tail && e.seq < r.head && r.at(e.seq) == e }

func (r *ring) push(e *Event) {
	if len(r.events) == cap(r.events) {
		r.popped = 0 // append moves the events
	}
	r.events = append(r.events, e)
	r.head++
	r.bytes += e.cost()
}

// pop drops the oldest event.
func (r *ring) pop() *Event {
	e := r.events[0]
	r.events[0] = nil
	r.events = r.events[1:]
	if r.popped++; r.popped > 64+3*len(r.events) {
		r.events, r.popped = append(make([]*Event, 0, len(r.events)), r.events...), 0
	}
	r.tail++
	r.bytes -= e.cost()
	r.frames = max(r.frames, r.tail)
	e.frames.retire()
	return e
}

// prepend adds older events in front.
func (r *ring) prepend(events []*Event) {
	r.appended = max(r.appended, r.tail)
	all := make([]*Event, 0, len(events)+len(r.events)+len(r.events)/4)
	r.events, r.popped = append(append(all, events...), r.events...), 0
	r.tail -= uint64(len(events))
	r.frames = r.tail // retiring frames twice does no harm
	for i, e := range events {
		e.seq = r.tail + uint64(i)
		r.bytes += e.cost()
	}
	r.findUnknown()
}

// setPrev sets the unknown previous state of the event at a position. Watchers may be reading the
// event without a lock, so another one takes its place.
func (r *ring) setPrev(seq uint64, prev *object.Object) {
	e := r.at(seq)
	known := &Event{Type: e.Type, shares: e.shares, seq: e.seq, RV: e.RV, Object: e.Object, Prev: prev, Appended: e.Appended}
	known.frames.budget = e.frames.budget
	r.bytes += known.cost() - e.cost()
	r.events[seq-r.tail] = known
	e.frames.retire()
}

// findUnknown sets r.unknown and r.ambiguous.
func (r *ring) findUnknown() {
	r.unknown, r.ambiguous = 0, 0
	for seq := min(r.appended, r.head); seq > r.tail; seq-- {
		e := r.at(seq - 1)
		if !e.PrevUnknown {
			continue
		}
		r.unknown = max(r.unknown, seq)
		if e.Type == api.Modified {
			r.ambiguous = seq
			return
		}
	}
}

// after returns the sequence number of the first event above rv.
func (r *ring) after(rv uint64) uint64 {
	if n := r.len(); n == 0 || r.at(r.head-1).RV <= rv {
		return r.head // nearly every watch starts at the newest version
	}
	return r.tail + uint64(sort.Search(r.len(), func(i int) bool { return r.at(r.tail+uint64(i)).RV > rv }))
}

// resume returns where a watch from version rv continues: after it, but with its first event if
// there are several.
func (r *ring) resume(rv uint64) uint64 {
	seq := r.after(rv)
	if seq-r.tail < 2 || r.at(seq-2).RV != rv {
		return seq
	}
	for seq > r.tail && r.at(seq-1).RV == rv {
		seq--
	}
	return seq
}

// isPartial reports whether only some of the changes of version rv were dropped.
func (r *ring) isPartial(rv uint64) bool {
	return r.len() > 0 && r.at(r.tail).RV == rv && r.at(r.tail).shares
}
