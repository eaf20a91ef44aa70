package embedded

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// expireStep is how many keys are deleted at a time.
	expireStep = 256
	// expireRetry is when deletions that failed are tried again.
	expireRetry = time.Second
)

// expiry holds the keys that have a time to live, ordered by its end: about 100 bytes for
// each, and the key's.
type expiry struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		byKey map[string]*lease
		order leases
	}
}

// A lease is the time to live of one version of a key.
type lease struct {
	key      string
	revision uint64
	at       int64 // milliseconds of Unix time
	place    int   // in order
}

func (x *expiry) init() {
	x.wake = make(chan struct{}, 1)
	x.mu.byKey = map[string]*lease{}
}

// of is when a key's time ends, 0 if never.
func (x *expiry) of(key string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.mu.byKey[key]; l != nil {
		return l.at
	}
	return 0
}

// apply follows changes that are on disk.
func (x *expiry) apply(all []changed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range all {
		x.set(c.key, c.revision, c.expires)
	}
}

// set gives a key another time to live, or none. mu is held.
func (x *expiry) set(key string, rev uint64, at int64) {
	l := x.mu.byKey[key]
	switch {
	case l == nil && at == 0:
		return
	case at == 0:
		heap.Remove(&x.mu.order, l.place)
		delete(x.mu.byKey, key)
		return
	case l == nil:
		l = &lease{key: key, revision: rev, at: at}
		x.mu.byKey[key] = l
		heap.Push(&x.mu.order, l)
	default:
		l.revision, l.at = rev, at
		heap.Fix(&x.mu.order, l.place)
	}
	if l.place == 0 {
		signal(x.wake)
	}
}

// due returns deletions of what has outlived its time, and when the next does; 0 for never.
func (x *expiry) due(now int64) (deletions []*change, next int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Each stays until its deletion is on disk, so those of one step are found by
	// walking down the heap, not by taking from it.
	var walk func(i int)
	walk = func(i int) {
		if i >= len(x.mu.order) || len(deletions) >= expireStep || x.mu.order[i].at > now {
			return
		}
		l := x.mu.order[i]
		deletions = append(deletions, &change{kind: changeDelete, key: l.key, expect: l.revision, done: make(chan struct{})})
		walk(2*i + 1)
		walk(2*i + 2)
	}
	walk(0)
	if len(x.mu.order) > 0 {
		next = x.mu.order[0].at
	}
	return deletions, next
}

func (e *Engine) loadExpiry() error {
	return e.scan([]byte{spaceExpiry}, []byte{spaceExpiry + 1}, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			at, rev, err := parseExpiryKey(iter.Key())
			if err != nil {
				return err
			}
			v, err := iter.ValueAndErr()
			if err != nil {
				return err
			}
			if e.mu.index.get(string(v)) != rev {
				return corrupt("a time to live without its key", iter.Key())
			}
			e.expiry.set(string(v), rev, at)
		}
		return nil
	})
}

// expiryLoop deletes keys when their time has come, as any other client would.
func (e *Engine) expiryLoop() {
	timer := e.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := e.clock.Now().UnixMilli()
		deletions, next := e.expiry.due(now)
		pause := time.Hour
		switch {
		case len(deletions) > 0 && e.expire(deletions):
			continue
		case len(deletions) > 0:
			pause = expireRetry
		case next != 0:
			pause = min(pause, time.Duration(next-now)*time.Millisecond)
		}
		timer.Stop()
		timer.Reset(pause)
		select {
		case <-timer.C():
		case <-e.expiry.wake:
		case <-e.closing:
			return
		}
	}
}

// expire deletes keys in as few groups as possible, and returns whether all are gone.
func (e *Engine) expire(deletions []*change) bool {
	down, err := e.guard.unavailable()
	if err != nil {
		return false
	}
	queued := deletions
	for i, c := range deletions {
		if e.queue.add(c) != nil {
			queued = deletions[:i]
			break
		}
	}
	all := len(queued) == len(deletions)
	for _, c := range queued {
		select {
		case <-c.done:
		case <-down:
			c.state.CompareAndSwap(changeWaits, changeLeft)
			all = false
			continue
		}
		// A conflict: the key was written meanwhile.
		if c.err != nil && !errors.Is(c.err, errConflict) {
			e.background("expire", c.err)
			all = false
			continue
		}
		if c.err == nil {
			e.metrics.expired.Inc()
		}
	}
	return all
}

// leases is a heap.Interface.
type leases []*lease

func (h leases) Len() int           { return len(h) }
func (h leases) Less(i, j int) bool { return h[i].at < h[j].at }

func (h leases) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *leases) Push(x any) {
	l := x.(*lease)
	l.place = len(*h)
	*h = append(*h, l)
}

func (h *leases) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return l
}
