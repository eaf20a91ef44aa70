package watchmux

import "sort"

// ring holds the newest events. Each has a sequence number, and the ring holds those in [tail,
// head). It grows and shrinks with its content. It is guarded by Mux.mu.
type ring struct {
	slots      []*Event // the length is a power of two
	tail, head uint64
	bytes      int64
	// frames is the position, in [tail, head], of the first event whose frames are kept.
	frames uint64
}

// minSlots is the minimum number of slots.
const minSlots = 64

func (r *ring) len() int { return int(r.head - r.tail) }

func (r *ring) at(seq uint64) *Event { return r.slots[seq&uint64(len(r.slots)-1)] }

func (r *ring) push(e *Event) {
	if r.len() == len(r.slots) {
		r.resize(max(minSlots, 2*len(r.slots)))
	}
	r.slots[r.head&uint64(len(r.slots)-1)] = e
	r.head++
	r.bytes += e.cost()
}

// pop drops the oldest event.
func (r *ring) pop() *Event {
	slot := &r.slots[r.tail&uint64(len(r.slots)-1)]
	e := *slot
	*slot = nil
	r.tail++
	r.bytes -= e.cost()
	if r.frames < r.tail {
		r.frames = r.tail
	}
	e.frames.retire()
	// Shrinking at a quarter leaves room in both directions, so each resize is paid for by as many
	// pushes or pops.
	if len(r.slots) > minSlots && r.len() < len(r.slots)/4 {
		r.resize(len(r.slots) / 2)
	}
	return e
}

func (r *ring) resize(n int) {
	slots := make([]*Event, n)
	for seq := r.tail; seq < r.head; seq++ {
		slots[seq&uint64(n-1)] = r.at(seq)
	}
	r.slots = slots
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

// isTorn reports whether only some of the changes of version rv were dropped.
func (r *ring) isTorn(rv uint64) bool {
	return r.len() > 0 && r.at(r.tail).RV == rv && r.at(r.tail).shares
}

// copy copies events from seq on into dst and returns how many.
func (r *ring) copy(dst []*Event, seq uint64) int {
	n := min(len(dst), int(r.head-seq))
	for i := range n {
		dst[i] = r.at(seq + uint64(i))
	}
	return n
}
