package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// ErrNotJoined means that older events do not lead to the state at which the history begins, so that
// some of them are missing or wrong.
var ErrNotJoined = errors.New("the events do not join the history")

// past is what is known of an object at a past version.
type past struct {
	object *object.Object // nil: there was none
	// isUnknown is true if there was one, of which only the uid is known.
	isUnknown bool
	uid       string
}

// Prepend extends the history backwards, see Mux.Prepend: events are all changes above from, up to
// the version to at which the history begins. They are checked against the state at to:
//
//  1. The last event of each object is what the object was at to.
//  2. Each object that had changed between from and to has an event.
//
// The error wraps ErrNotJoined if that is not so. The other errors are those of Mux.Prepend.
func (s *Store) Prepend(from, to uint64, events []*watchmux.Event) error {
	s.publish.Lock() // so that the state and the mux are at the same event
	head := s.Current()
	above, err := s.mux.Above(to)
	s.publish.Unlock()
	if err != nil {
		return watchmux.ErrMoved
	}
	undone := make(map[string]past)
	for _, e := range slices.Backward(above) {
		undone[e.Object.Key] = past{object: e.Prev, isUnknown: e.PrevUnknown, uid: e.Object.UID}
	}
	last := make(map[string]*watchmux.Event)
	for _, e := range events {
		last[e.Object.Key] = e
	}
	for key, e := range last {
		at, ok := undone[key]
		if !ok {
			at.object = head.Get(key)
		}
		if err := join(e, at); err != nil {
			return err
		}
	}
	missing := func(o *object.Object) error {
		if o == nil || o.RV <= from || last[o.Key] != nil {
			return nil
		}
		return fmt.Errorf("%w: %s changed at %d without an event", ErrNotJoined, o.Key, o.RV)
	}
	for _, at := range undone {
		if err := missing(at.object); err != nil {
			return err
		}
	}
	err = head.Each(func(o *object.Object) error {
		if _, ok := undone[o.Key]; ok {
			return nil
		}
		return missing(o)
	})
	if err != nil {
		return err
	}
	return s.mux.Prepend(from, to, events)
}

// join checks that an object was as its last event says. The event then shares the memory of the
// state.
func join(e *watchmux.Event, at past) error {
	switch {
	case e.Type == api.Deleted && at.object == nil && !at.isUnknown:
		return nil
	case e.Type != api.Deleted && at.isUnknown && e.Object.UID == at.uid:
		return nil
	case e.Type != api.Deleted && at.object != nil && e.Object.RV == at.object.RV && e.Object.UID == at.object.UID:
		if bytes.Equal(e.Object.Raw, at.object.Raw) {
			e.Object = at.object
		}
		return nil
	}
	return fmt.Errorf("%w: the last event of %s is %s at %d", ErrNotJoined, e.Object.Key, e.Type, e.RV)
}
