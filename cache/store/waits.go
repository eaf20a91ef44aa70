package store

import (
	"math"
	"sync"
	"sync/atomic"
)

// waits are the callers that wait for a version, or for a change of an object. Without any, they
// cost the writer two atomic loads per event.
type waits struct {
	mu struct {
		sync.Mutex
		versions map[chan struct{}]uint64
		keys     map[chan struct{}]string
	}
	next atomic.Uint64 // no version below it is waited for
	keys atomic.Int64  // len(mu.keys)
}

func (w *waits) init() {
	w.next.Store(math.MaxUint64)
	w.mu.versions, w.mu.keys = make(map[chan struct{}]uint64), make(map[chan struct{}]string)
}

// version registers a wait for rv, which ends when the channel is closed. The caller then checks
// the version once more, and calls cancel in the end.
func (w *waits) version(rv uint64) chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.versions[done] = rv
	w.next.Store(min(w.next.Load(), rv))
	return done
}

// key registers a wait for a change of the object at key, as version does.
func (w *waits) key(key string) chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.keys[done] = key
	w.keys.Store(int64(len(w.mu.keys)))
	return done
}

func (w *waits) cancel(done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.versions, done)
	delete(w.mu.keys, done)
	w.keys.Store(int64(len(w.mu.keys)))
}

// reached releases the callers that wait for rv or less.
func (w *waits) reached(rv uint64) {
	if w.next.Load() > rv {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := uint64(math.MaxUint64)
	for done, wanted := range w.mu.versions {
		if wanted > rv {
			next = min(next, wanted)
			continue
		}
		close(done)
		delete(w.mu.versions, done)
	}
	w.next.Store(next)
}

// changed releases the callers that wait for the object at key, which was replaced or deleted.
func (w *waits) changed(key string) {
	if w.keys.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for done, wanted := range w.mu.keys {
		if wanted == key {
			close(done)
			delete(w.mu.keys, done)
		}
	}
	w.keys.Store(int64(len(w.mu.keys)))
}
