package embedded

import (
	"github.com/kubeweir/kubeweir/origin/storage"
)

// Limits of the ring: a second of what the disk can take, or a few. Watchers that
// are further behind read the log.
const (
	ringEvents = 4096
	ringBytes  = 4 << 20
)

// A ringEvent is a change as the ring holds it: 80 bytes, and its value.
type ringEvent struct {
	kind     storage.EventType
	key      string
	value    []byte // nil if deleted
	revision uint64
	previous uint64 // revision of the version before, 0 if there was none
}

// ring holds the newest changes, one for each revision in [first, next).
type ring struct {
	slots []ringEvent // made for the first change; length ringEvents
	first uint64
	next  uint64
	bytes int
}

func (r *ring) init(next uint64) { r.first, r.next = next, next }

func (r *ring) at(rev uint64) *ringEvent { return &r.slots[rev%ringEvents] }

func (r *ring) holds(rev uint64) bool { return r.first <= rev && rev < r.next }

// push adds the change of revision next.
func (r *ring) push(ev ringEvent) {
	if r.slots == nil {
		r.slots = make([]ringEvent, ringEvents)
	}
	for r.first < r.next && (r.next-r.first == ringEvents || r.bytes+len(ev.value) > ringBytes) {
		old := r.at(r.first)
		r.bytes -= len(old.value)
		*old = ringEvent{}
		r.first++
	}
	*r.at(r.next) = ev
	r.bytes += len(ev.value)
	r.next++
}
