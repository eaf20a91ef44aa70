package watch

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/reason"
)

// OpenWatch is the state of a watch at one moment.
type OpenWatch struct {
	// ID is unique among all watches of a Watches.
	ID uint64
	Client
	Resource schema.GroupVersionResource
	Rep      api.Representation
	// Began is when the watch was opened, Events how many events it was sent since.
	Began  time.Time
	Events uint64

	s *stream
}

// Lagging reports whether the watch has left events unread for more than a second.
func (o *OpenWatch) Lagging() bool { return o.s != nil && o.s.watcher != nil && o.s.watcher.Lagging() }

// List returns all open watches in no particular order.
func (ws *Watches) List() []OpenWatch {
	streams := ws.streams()
	list := make([]OpenWatch, len(streams))
	for i, s := range streams {
		list[i] = s.asOpen()
	}
	return list
}

// End ends the watches for which which returns true, after the events that they already have, and
// returns how many.
func (ws *Watches) End(why reason.WatchEnd, which func(*OpenWatch) bool) (n int) {
	for _, s := range ws.streams() {
		if open := s.asOpen(); which(&open) {
			s.end(why)
			n++
		}
	}
	return n
}

// streams returns the open streams.
func (ws *Watches) streams() []*stream {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.mu.open))
}

// asOpen reads only fields that do not change after Start, and counters.
func (s *stream) asOpen() OpenWatch {
	return OpenWatch{
		ID: s.id, Client: s.req.Client, Resource: s.c.Resource().GroupVersionResource, Rep: s.req.Rep,
		Began: s.began, Events: s.events.Load(), s: s,
	}
}
