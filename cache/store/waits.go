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
		callers map[chan struct{}]wait
	}
	next atomic.Uint64 // no version below it is waited for
	keys atomic.Int64  // without any, no change of an object is waited for
}

// wait is what a caller waits for: rv or, if key is not "", a change of the object at key.
type wait struct {
	rv  uint64
	key string
}

func (w *waits) init() {
	w.next.Store(math.MaxUint64)
	w.mu.callers = make(map[chan struct{}]wait)
}

// add registers a wait, which ends when the channel is closed. The caller then checks the state
// once more, and calls cancel in the end.
func (w *waits) add(want wait) chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.callers[done] = want
	if want.key != "" {
		w.keys.Add(1)
	} else {
		w.next.Store(min(w.next.Load(), want.rv))
	}
	return done
}

// cancel removes a wait. next and keys follow at the next change that they do not exclude.
func (w *waits) cancel(done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.callers, done)
}

// reached releases the callers that wait for rv or less.
func (w *waits) reached(rv uint64) {
	if w.next.Load() <= rv {
		w.release(func(want wait) bool { return want.key == "" && want.rv <= rv })
	}
}

// changed releases the callers that wait for the object at key, which was replaced or deleted.
func (w *waits) changed(key string) {
	if w.keys.Load() > 0 {
		w.release(func(want wait) bool { return want.key == key })
	}
}

func (w *waits) release(isOver func(wait) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, keys := uint64(math.MaxUint64), int64(0)
	for done, want := range w.mu.callers {
		switch {
		case isOver(want):
			close(done)
			delete(w.mu.callers, done)
		case want.key != "":
			keys++
		default:
			next = min(next, want.rv)
		}
	}
	w.next.Store(next)
	w.keys.Store(keys)
}
