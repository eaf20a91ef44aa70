// Package watchtest checks the guarantees of Kubernetes watches on what a client saw on the wire.
// Its checkers follow etcd's tests/robustness/validate/watch.go.
//
// As a rule every change has a version of its own. The changes of one etcd transaction share one,
// and neither a server nor a client can tell which of them is the last (Truth.Shared). Then a watch
// may begin with events of its start version, end between two events of a version, and report a
// version before it has sent all of its events; but a client that resumes after an interruption
// must get all of them.
//
// A checker gets a Watch (one response) and the Truth (what an uninterrupted watch with the same
// selector would have sent) and returns an error that names the first violation, or nil. Checkers
// are for tests of any layer: the multiplexer alone, the gateway, or kube-apiserver itself.
package watchtest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/kubeweir/kubeweir/internal/api"
)

// WireEvent is one event as a client received it.
type WireEvent struct {
	Type api.EventType
	// Key is "namespace/name", or "name" of a cluster-scoped object; "" for bookmarks.
	Key string
	// RV is metadata.resourceVersion of the event's object.
	RV uint64
	// End marks the bookmark that ends the initial events.
	End bool
}

// String formats the event for messages.
func (e WireEvent) String() string {
	end := ""
	if e.End {
		end = " (end of initial events)"
	}
	return fmt.Sprintf("%s %s@%d%s", e.Type, e.Key, e.RV, end)
}

// Watch is one watch response, from its start to its end for any reason. An ERROR event is not part
// of Events.
type Watch struct {
	// From is the exclusive start version. With Initial it is the minimum version that was
	// requested, 0 for any.
	From uint64
	// Initial is true if the watch began with the collection's state: ADDED events
	// of any versions, up to the bookmark with End set.
	Initial bool
	// Cut is true if the watch ended, or its client left, before it could send everything. Otherwise
	// it must have sent every event of the truth.
	Cut    bool
	Events []WireEvent
}

// live splits off the initial events: it returns the events after them and the version at which
// they start. ok is false if the initial events never ended.
func (w Watch) live() (events []WireEvent, from uint64, ok bool) {
	if !w.Initial {
		return w.Events, w.From, true
	}
	for i, e := range w.Events {
		if e.Type == api.Bookmark && e.End {
			return w.Events[i+1:], e.RV, true
		}
	}
	return nil, 0, false
}

// Last returns the version from which the client would resume: that of the last event or bookmark,
// or the start.
func (w Watch) Last() uint64 {
	events, from, ok := w.live()
	if !ok {
		return 0
	}
	if len(events) > 0 {
		return events[len(events)-1].RV
	}
	return from
}

// Truth is the history of the selected objects: every event above From in version order, with
// selector transitions applied. Complete histories begin with an empty collection at From.
type Truth struct {
	From     uint64
	Complete bool
	// Shared is true if several events may have one version.
	Shared bool
	Events []WireEvent
}

// Between returns the events of versions in (from, to].
func (t Truth) Between(from, to uint64) []WireEvent {
	after := func(rv uint64) int {
		return sort.Search(len(t.Events), func(i int) bool { return t.Events[i].RV > rv })
	}
	first, last := after(from), after(to)
	return t.Events[min(first, last):last]
}

// State returns the version of each selected object at rv. It needs a complete history.
func (t Truth) State(rv uint64) map[string]uint64 {
	return fold(map[string]uint64{}, t.Between(t.From, rv))
}

func fold(state map[string]uint64, events []WireEvent) map[string]uint64 {
	for _, e := range events {
		switch e.Type {
		case api.Added, api.Modified:
			state[e.Key] = e.RV
		case api.Deleted:
			delete(state, e.Key)
		}
	}
	return state
}

// Check runs every checker.
func Check(w Watch, t Truth) error {
	return errors.Join(Ordered(w, t.Shared), Unique(w), Consistent(w), Initial(w, t), Reliable(w, t), Bookmarkable(w, t))
}

// Ordered checks that versions rise strictly from event to event, or never fall if events may share
// one. They start above the start version, and bookmarks never go back.
func Ordered(w Watch, shared bool) error {
	events, last, _ := w.live()
	for i, e := range events {
		if e.RV < last || e.RV == last && e.Type != api.Bookmark && !shared {
			return fmt.Errorf("ordered: event %d, %s, after version %d", i, e, last)
		}
		last = e.RV
	}
	return nil
}

// Unique checks that no version of an object is sent twice.
func Unique(w Watch) error {
	seen := map[WireEvent]int{}
	for i, e := range w.Events {
		if e.Type == api.Bookmark {
			continue
		}
		id := WireEvent{Key: e.Key, RV: e.RV}
		if first, ok := seen[id]; ok {
			return fmt.Errorf("unique: event %d, %s, was event %d already", i, e, first)
		}
		seen[id] = i
	}
	return nil
}

// Consistent checks that a client that follows the event types never adds an object that it has,
// nor changes or deletes one that it does not have.
func Consistent(w Watch) error {
	present := map[string]bool{} // of the keys seen
	for i, e := range w.Events {
		was, known := present[e.Key]
		known = known || w.Initial
		switch e.Type {
		case api.Added:
			if was {
				return fmt.Errorf("consistent: event %d, %s, of an object that is present", i, e)
			}
			present[e.Key] = true
		case api.Modified, api.Deleted:
			if known && !was {
				return fmt.Errorf("consistent: event %d, %s, of an object that is absent", i, e)
			}
			present[e.Key] = e.Type == api.Modified
		}
	}
	return nil
}

// Initial checks that the initial events are the state at the version of their end, which is not
// older than requested. It compares the state if the truth is complete.
func Initial(w Watch, t Truth) error {
	if !w.Initial {
		return nil
	}
	live, end, ok := w.live()
	if !ok {
		return errors.New("initial: no bookmark ended the initial events")
	}
	if end < w.From {
		return fmt.Errorf("initial: ended at %d, requested not older than %d", end, w.From)
	}
	if !t.Complete {
		return nil
	}
	got := fold(map[string]uint64{}, w.Events[:len(w.Events)-len(live)])
	if !t.Shared {
		return compare(got, t.State(end), end)
	}
	// Any number of the changes at the end's own version may have arrived.
	want := t.State(below(end))
	err := compare(got, want, end)
	for _, e := range t.Between(below(end), end) {
		if err == nil {
			break
		}
		err = compare(got, fold(want, []WireEvent{e}), end)
	}
	return err
}

// compare compares initial events with the state at end.
func compare(got, want map[string]uint64, end uint64) error {
	if maps.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("initial: at %d the objects have the versions %v, want %v", end, got, want)
}

// Reliable checks that nothing is missing and nothing is invented, from the start to the end of the
// truth, or to the last event of a watch that was cut.
func Reliable(w Watch, t Truth) error {
	live, from, ok := w.live()
	if !ok {
		return nil
	}
	if from < t.From {
		return fmt.Errorf("reliable: the watch starts at %d, before the truth at %d", from, t.From)
	}
	got := slices.DeleteFunc(slices.Clone(live), func(e WireEvent) bool { return e.Type == api.Bookmark })
	last := uint64(math.MaxUint64)
	if w.Cut {
		last = w.Last()
	}
	want := t.Between(from, last)
	if t.Shared {
		got = got[t.repeated(from, got):]
		// A watch that was cut may lack some events of its last version.
		for n := len(want); n > len(got) && want[n-1].RV == last; n-- {
			want = want[:n-1]
		}
	}
	for i := 0; i < len(got) || i < len(want); i++ {
		switch {
		case i >= len(got):
			return fmt.Errorf("reliable: %s is missing (from %d, last seen %d, cut %t)", want[i], from, w.Last(), w.Cut)
		case i >= len(want):
			return fmt.Errorf("reliable: %s is not in the truth (from %d)", got[i], from)
		case got[i] != want[i]:
			return fmt.Errorf("reliable: event %d is %s, want %s (from %d)", i, got[i], want[i], from)
		}
	}
	return nil
}

// below is the version before rv.
func below(rv uint64) uint64 { return max(rv, 1) - 1 }

// repeated returns how many of events, with which a watch from that version begins, have the
// version itself: all of that version, or its last ones.
func (t Truth) repeated(from uint64, events []WireEvent) int {
	n := 0
	for n < len(events) && events[n].RV == from {
		n++
	}
	at := t.Between(below(from), from)
	if n > len(at) || !slices.Equal(at[len(at)-n:], events[:n]) {
		return 0 // they are not in the truth, which Reliable reports
	}
	return n
}

// Bookmarkable checks that everything up to a bookmark's version was sent before it. Ordered checks
// that nothing up to it is sent later.
func Bookmarkable(w Watch, t Truth) error {
	live, from, ok := w.live()
	if !ok {
		return nil
	}
	sent := 0 // events before the bookmark
	for _, e := range live {
		if e.Type != api.Bookmark {
			if !t.Shared || e.RV > from {
				sent++
			}
			continue
		}
		want, least := t.Between(from, e.RV), 0
		if least = len(want); t.Shared {
			least = len(t.Between(from, max(from, below(e.RV))))
		}
		if sent < least || sent > len(want) {
			return fmt.Errorf("bookmarkable: %d events before %s, want %d", sent, e, len(want))
		}
	}
	return nil
}

// Resumable checks that a client's watches, each begun at the version where the previous one ended,
// are equivalent to one uninterrupted watch: every watch satisfies the guarantees, and together
// they leave no gap and repeat nothing. All but the last were cut.
func Resumable(watches []Watch, t Truth) error {
	var joined Watch
	for i, w := range watches {
		w.Cut = w.Cut || i < len(watches)-1
		if err := Check(w, t); err != nil {
			return fmt.Errorf("watch %d: %w", i, err)
		}
		if i > 0 && !w.Initial && w.From != watches[i-1].Last() {
			return fmt.Errorf("resumable: watch %d starts at %d, the one before ended at %d", i, w.From, watches[i-1].Last())
		}
		// Joined, they must look like one.
		if i == 0 || w.Initial {
			joined = Watch{From: w.From, Initial: w.Initial}
		}
		joined.Cut = w.Cut
		joined.Events = append(joined.Events, afresh(joined, w, t)...)
		if err := Check(joined, t); err != nil {
			return fmt.Errorf("resumable: up to watch %d: %w", i, err)
		}
	}
	return nil
}

// afresh returns the events of w without those at its start that the watches before it, joined,
// have sent already.
func afresh(joined, w Watch, t Truth) []WireEvent {
	if !t.Shared || w.Initial {
		return w.Events
	}
	return slices.DeleteFunc(slices.Clone(w.Events), func(e WireEvent) bool {
		return e.RV == w.From && e.Type != api.Bookmark && slices.Contains(joined.Events, e)
	})
}
