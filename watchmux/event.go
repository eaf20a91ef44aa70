// Package watchmux fans the events of one collection out to any number of watchers: one ring of
// immutable events, and a cursor and a filter per watcher.
//
// # Cost
//
// A watcher that has read everything is armed: it waits in the index under its most selective
// equality term and costs nothing until an event concerns it. That event sets its cursor, removes
// it from the index and notifies it. Until it has caught up, no further event touches it. So the
// cost of an event is that of the watchers it wakes, and nothing is copied per watcher. The cost of
// a filter that a client has made large is paid where its events are read.
//
// # Versions
//
// As a rule each change has its own version, but the changes of one etcd transaction share one: all
// Events whose lease ends, or a prefix that is deleted. They arrive one after the other, and the
// last one is known only when something with a higher version arrives. So a list or a watch can see
// a version while some of its changes are missing, and a watch that starts from that version must
// get them. Watch therefore sends all changes of a version that several share, and repeats those
// that the client has. A repeated deletion does no harm. (kube-apiserver sends none, and such a
// client never learns of the rest.) A watch from a future version has its first change, and gets
// the others. Next never splits the changes of a version that have arrived.
//
// # Memory
//
// The ring is bounded by age, bytes and count, encoded frames by a budget of their own. A watcher
// that falls off the ring gets ErrExpired. It never slows others down or keeps events alive.
//
// Prepend adds older events in front of the ring, for watchers that start before it.
package watchmux

import (
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Event is one change of a collection. It is shared by all watchers and immutable once appended,
// except for the frames kept with it.
type Event struct {
	// Type is Added, Modified or Deleted.
	Type api.EventType
	// shares is true if the previous event has the same version. seq is the event's number in the
	// ring. Append and Prepend set both.
	shares bool
	seq    uint64
	// RV is the version of the change. In a ring, versions never fall.
	RV uint64
	// Object is the state after the change. For Deleted it is the last state, as the upstream sent
	// it, with the version of the deletion.
	Object *object.Object
	// Prev is the state before the change, nil for Added.
	Prev *object.Object
	// PrevUnknown is true if the event is Modified or Deleted and Prev is nil because it is not known.
	// Only the first event of an object that Prepend has added may have it.
	PrevUnknown bool
	// Appended is when the event entered the ring, in nanoseconds of the ring's clock. Append and
	// Prepend set it.
	Appended int64

	frames frameCache
}

// eventOverhead is the size of an event besides the bytes of its objects: itself, its slot, and the
// scanned form of an object.
const eventOverhead = 1024

// cost returns the memory that only the ring keeps alive through the event: the state that it
// replaced, or the deleted one. The newest state of an object belongs to the collection.
func (e *Event) cost() int64 {
	n := int64(eventOverhead)
	if e.Prev != nil {
		n += int64(len(e.Prev.Raw))
	}
	if e.Type == api.Deleted {
		n += int64(len(e.Object.Raw))
	}
	return n
}

// deliver returns the event as a watcher with this filter receives it, like convertToWatchEvent in
// k8s.io/apiserver/pkg/storage/cacher: an object that enters the filter is added, one that leaves
// is deleted with its last matching state. ok is false if the event does not concern the watcher.
func (e *Event) deliver(f *object.Filter) (d Delivery, ok bool) {
	before := e.Prev != nil && f.Matches(e.Prev)
	if e.PrevUnknown {
		// Watch has made sure that the filter does not depend on it. The object of a deletion is the
		// last state anyway.
		before = f.Matches(e.Object)
	}
	if e.Type == api.Deleted {
		if !before && (e.Prev != nil || !f.Matches(e.Object)) {
			return Delivery{}, false
		}
		return Delivery{Event: e, Type: api.Deleted, Object: e.Object, RV: e.RV}, true
	}
	after := f.Matches(e.Object)
	switch {
	case after && before:
		return Delivery{Event: e, Type: api.Modified, Object: e.Object, RV: e.RV}, true
	case after:
		return Delivery{Event: e, Type: api.Added, Object: e.Object, RV: e.RV}, true
	case before:
		return Delivery{Event: e, Type: api.Deleted, Object: e.Prev, RV: e.RV}, true
	}
	return Delivery{}, false
}

// isAbove reports whether a watcher that has the state at rv, a version that was above that of the
// ring, needs the event.
func (e *Event) isAbove(rv uint64) bool { return e.RV > rv || e.shares && e.RV == rv }

// Delivery is an Event as one watcher sees it.
type Delivery struct {
	Event *Event
	// Type is Added, Modified or Deleted.
	Type api.EventType
	// Object is the state to send. When an object leaves the watcher's filter, it is the state
	// before the change, with an older version than RV: send Object.AtRV(RV).
	Object *object.Object
	// RV is the version of the change.
	RV uint64
}

// frameCache keeps the frames of one event: a list that only grows, until the event leaves the ring
// or the frame budget and everything is dropped. The zero value is ready to use and not counted.
type frameCache struct {
	head atomic.Pointer[frame]
	// budget is the frame budget of the ring. It is set before the event is shared.
	budget *frameBudget
}

// frameBudget bounds the bytes of all frames of a ring. New frames are kept while less than max is
// used; Mux.trim makes room by retiring the oldest ones.
type frameBudget struct {
	used atomic.Int64
	max  int64
}

type frameKey struct {
	rep     api.Representation
	kind    api.EventType
	variant uint8
}

// frame is one encoded form, made under once, or the reason why there is none: a form that cannot
// be made for one reader is an error for all.
type frame struct {
	key   frameKey
	next  *frame
	once  sync.Once
	bytes []byte
	err   error
	// counted is how much the budget's use includes for this frame.
	counted atomic.Int64
}
