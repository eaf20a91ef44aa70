package store

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
)

// waits are the callers that wait for a version, or for a change of an object. Without any, they
// cost the writer two atomic loads per event.
type waits struct {
	mu struct {
		sync.Mutex
		versions versionHeap
		keys     map[string]map[*keyWait]struct{}
	}
	// next is the lowest version that is waited for, MaxUint64 without one. keys is len(mu.keys).
	next atomic.Uint64
	keys atomic.Int64
}

// versionWait waits for one version; done is closed when it is reached.
type versionWait struct {
	rv    uint64
	index int // in the heap, -1 outside
	done  chan struct{}
}

// keyWait waits until an object is replaced or deleted, once.
type keyWait struct{ done chan struct{} }

func (w *waits) init() { w.next.Store(math.MaxUint64) }

// version registers a wait for rv. The caller then checks the version once more, and calls cancel
// in the end.
func (w *waits) version(rv uint64) *versionWait {
	v := &versionWait{rv: rv, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	heap.Push(&w.mu.versions, v)
	w.next.Store(w.mu.versions[0].rv)
	return v
}

func (w *waits) cancel(v *versionWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.index >= 0 {
		heap.Remove(&w.mu.versions, v.index)
	}
	w.nextLocked()
}

func (w *waits) nextLocked() {
	next := uint64(math.MaxUint64)
	if len(w.mu.versions) > 0 {
		next = w.mu.versions[0].rv
	}
	w.next.Store(next)
}

// reached releases the callers that wait for rv or less.
func (w *waits) reached(rv uint64) {
	if w.next.Load() > rv {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.mu.versions) > 0 && w.mu.versions[0].rv <= rv {
		close(heap.Pop(&w.mu.versions).(*versionWait).done)
	}
	w.nextLocked()
}

// key registers a wait for a change of the object at key.
func (w *waits) key(key string) *keyWait {
	k := &keyWait{done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.keys == nil {
		w.mu.keys = make(map[string]map[*keyWait]struct{})
	}
	if w.mu.keys[key] == nil {
		w.mu.keys[key] = make(map[*keyWait]struct{})
	}
	w.mu.keys[key][k] = struct{}{}
	w.keys.Store(int64(len(w.mu.keys)))
	return k
}

func (w *waits) cancelKey(key string, k *keyWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.keys[key], k)
	if len(w.mu.keys[key]) == 0 {
		delete(w.mu.keys, key)
	}
	w.keys.Store(int64(len(w.mu.keys)))
}

// changed releases the callers that wait for the object at key, which was replaced or deleted.
func (w *waits) changed(key string) {
	if w.keys.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.mu.keys[key] {
		close(k.done)
	}
	delete(w.mu.keys, key)
	w.keys.Store(int64(len(w.mu.keys)))
}

// versionHeap orders waits by version, see container/heap.
type versionHeap []*versionWait

func (h versionHeap) Len() int           { return len(h) }
func (h versionHeap) Less(i, j int) bool { return h[i].rv < h[j].rv }
func (h versionHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *versionHeap) Push(x any) {
	v := x.(*versionWait)
	v.index = len(*h)
	*h = append(*h, v)
}

// Pop implements heap.Interface.
func (h *versionHeap) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	v.index = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return v
}
