package storagetest

import (
	"slices"
	"strings"
	"sync"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// A history is what happened to the keys below a prefix, as those who changed them know it.
// It is safe for concurrent use.
type history struct {
	prefix string

	mu sync.Mutex
	// changes in the order of their revisions; one with a nil value deleted its key.
	changes []storage.KeyValue
}

func newHistory(prefix string) *history { return &history{prefix: prefix} }

func (h *history) add(kv storage.KeyValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(h.changes)
	for i > 0 && h.changes[i-1].Revision > kv.Revision { // nearly sorted: others answer at about the same time
		i--
	}
	h.changes = slices.Insert(h.changes, i, kv)
}

// last is the newest revision known, 0 when nothing happened.
func (h *history) last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) == 0 {
		return 0
	}
	return h.changes[len(h.changes)-1].Revision
}

// revision is a key's at a revision of the store, 0 when it does not exist then.
func (h *history) revision(key string, at uint64) uint64 {
	for _, kv := range h.at(at) {
		if kv.Key == key {
			return kv.Revision
		}
	}
	return 0
}

// at is what there is at a revision, in the order of the keys.
func (h *history) at(rev uint64) []storage.KeyValue {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := map[string]storage.KeyValue{}
	for _, kv := range h.changes {
		if kv.Revision > rev {
			break
		}
		if kv.Value == nil {
			delete(state, kv.Key)
		} else {
			state[kv.Key] = kv
		}
	}
	out := make([]storage.KeyValue, 0, len(state))
	for _, kv := range state {
		out = append(out, kv)
	}
	slices.SortFunc(out, func(a, b storage.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// events are those a watch of a prefix after a revision must deliver, up to another revision,
// inclusive.
func (h *history) events(prefix string, after, upTo uint64) []storage.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	state := map[string]*storage.KeyValue{}
	var out []storage.Event
	for _, kv := range h.changes {
		ev := storage.Event{Type: storage.Updated, KV: kv, Previous: state[kv.Key]}
		switch {
		case kv.Value == nil:
			ev.Type = storage.Deleted
			delete(state, kv.Key)
		case ev.Previous == nil:
			ev.Type = storage.Created
			fallthrough
		default:
			state[kv.Key] = &kv
		}
		if kv.Revision > after && kv.Revision <= upTo && strings.HasPrefix(kv.Key, prefix) {
			out = append(out, ev)
		}
	}
	return out
}

// historyOf returns the history that a watch has delivered from before the prefix's first key on.
func historyOf(prefix string, events []storage.Event) *history {
	h := newHistory(prefix)
	for _, ev := range events {
		kv := ev.KV
		if ev.Type != storage.Deleted && kv.Value == nil {
			kv.Value = []byte{} // an empty value is one
		}
		h.add(kv)
	}
	return h
}
