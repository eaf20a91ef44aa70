// Package watchmux fans the events of one collection out to any number of
// watchers: one ring of immutable events, a cursor and a filter per watcher.
//
// # Cost
//
// A watcher that has read everything is armed: it waits in the index under its
// most selective equality term and costs nothing until an event concerns it.
// That event moves its cursor, takes it out of the index and notifies it; until
// it has caught up again no further event touches it. So an event costs the
// watchers that it wakes, and nothing is copied per watcher. What a filter costs
// that a client has made large is paid where its events are read.
//
// # Versions
//
// As a rule each change has a version of its own, but those that etcd makes in one
// transaction have one together: all Events whose lease ends, or a prefix that is
// deleted. They come one after the other, and nobody knows which is the last until
// something with a higher version comes. So a version can be seen while some of its
// changes are still to come, by a list as well as by a watch. Who then watches from
// that version must get them: Watch sends all changes of a version that several share,
// again to those who have some. To be told twice that an object is gone does no harm.
// (kube-apiserver sends none, and such a client never hears of the rest.) Who watches
// from a version that is still to come has its first change, and gets the others. Next
// never divides the changes of a version that are there.
//
// # Memory
//
// The ring is bounded by age, bytes and count, encoded frames by a budget of
// their own. A watcher that falls off the ring gets ErrExpired; it never slows
// the others or keeps events alive.
package watchmux

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// Event is one change of a collection. It is immutable once appended, but for
// the frames kept with it, and shared by all watchers.
type Event struct {
	// Type is Added, Modified or Deleted.
	Type api.EventType
	// shares tells that the event before has the same version. Append sets it.
	shares bool
	// seq is its number in the ring. Append sets it.
	seq uint64
	// RV is the version of the change. In a ring they never fall.
	RV uint64
	// Object is the state after the change; for Deleted the last state, as the
	// upstream sent it, with the version of the deletion.
	Object *object.Object
	// Prev is the state before the change, nil for Added.
	Prev *object.Object
	// Appended is when the event entered the ring, in nanoseconds of the ring's
	// clock. Append sets it.
	Appended int64

	frames frameCache
}

// eventOverhead is what an event takes beside the bytes of its objects: itself,
// its slot, the scanned form of an object.
const eventOverhead = 1024

// cost is the memory that the ring alone keeps alive through the event: the
// state that it replaced, or the one that is gone. The newest state of an object
// belongs to the collection.
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

// deliver says what the event is to a watcher with this filter, as
// k8s.io/apiserver/pkg/storage/cacher (convertToWatchEvent) does: an object that
// enters the filter is added, one that leaves is deleted with its last matching
// state. ok is false when the event does not concern the watcher.
func (e *Event) deliver(f *object.Filter) (d Delivery, ok bool) {
	before := e.Prev != nil && f.Matches(e.Prev)
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

// isAbove reports whether the event is for who has the state at rv, which was above that
// of the ring.
func (e *Event) isAbove(rv uint64) bool { return e.RV > rv || e.shares && e.RV == rv }

// concerns reports whether deliver has something for the filter.
func (e *Event) concerns(f *object.Filter) bool {
	if f == nil {
		return true
	}
	if e.Prev != nil && f.Matches(e.Prev) {
		return true
	}
	return (e.Type != api.Deleted || e.Prev == nil) && f.Matches(e.Object)
}

// Delivery is an Event as one watcher sees it.
type Delivery struct {
	Event *Event
	// Type is Added, Modified or Deleted.
	Type api.EventType
	// Object is the state to send. When an object leaves the watcher's filter it
	// is the state before the change and has an older version than RV: send
	// Object.AtRV(RV).
	Object *object.Object
	// RV is the version of the change.
	RV uint64
}

// Frame returns the wire frame of this delivery in a representation. The first
// caller makes it with encode, all others (and any number of them at once) share
// the bytes, which must not be changed, or the error. variant tells frames apart that differ
// in something else than representation and type (0 to 255, the caller's
// choice). Frames of events that have left the frame budget are encoded anew at
// each call.
func (d Delivery) Frame(rep api.Representation, variant uint8, encode func(Delivery) ([]byte, error)) ([]byte, error) {
	return d.Event.frames.get(frameKey{rep, d.Type, variant}, d, encode)
}

// KeptFrame is Frame for what costs too much to be encoded anew at each call: ok is
// false, and nothing is encoded, where the frame would not be kept.
func (d Delivery) KeptFrame(rep api.Representation, variant uint8, encode func(Delivery) ([]byte, error)) (frame []byte, ok bool, err error) {
	return d.Event.frames.getKept(frameKey{rep, d.Type, variant}, d, encode)
}
