package embedded

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"
)

const (
	// expireStep is how many keys are deleted at a time.
	expireStep = 256
	// expireRetry is when deletions that failed are tried again.
	expireRetry = time.Second
)

// expiry holds the keys that have a time to live: about 150 bytes for each, and the key's.
type expiry struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		byKey map[string]lease
		order *btree.BTreeG[lease] // by end
	}
}

// A lease is the time to live of one version of a key.
type lease struct {
	at       int64 // when it ends, in milliseconds of Unix time
	revision uint64
	key      string
}

func (x *expiry) init() {
	x.wake = make(chan struct{}, 1)
	x.mu.byKey = map[string]lease{}
	x.mu.order = btree.NewBTreeG(func(a, b lease) bool {
		return a.at < b.at || a.at == b.at && a.revision < b.revision
	})
}

// of returns when a key expires, 0 if never.
func (x *expiry) of(key string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.byKey[key].at
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
	if before, ok := x.mu.byKey[key]; ok {
		x.mu.order.Delete(before)
		delete(x.mu.byKey, key)
	}
	if at == 0 {
		return
	}
	l := lease{at: at, revision: rev, key: key}
	x.mu.byKey[key] = l
	x.mu.order.Set(l)
	if first, _ := x.mu.order.Min(); first == l {
		signal(x.wake)
	}
}

// due returns deletions of the keys that have expired, and when the first key of all expires; 0
// for never. A key stays until its deletion is on disk.
func (x *expiry) due(now int64) (deletions []*change, next int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.order.Scan(func(l lease) bool {
		if l.at > now || len(deletions) >= expireStep {
			return false
		}
		deletions = append(deletions, &change{kind: changeDelete, key: l.key, expect: l.revision, done: make(chan struct{})})
		return true
	})
	first, _ := x.mu.order.Min()
	return deletions, first.at
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
