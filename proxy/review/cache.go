package review

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	cacheShards = 16
	// EvictionSample is how many entries are compared to choose one to evict.
	EvictionSample = 8
)

// Cache is a bounded map whose entries expire. DropAll starts a new generation: an entry belongs to
// the generation in which its review began, and only entries of the current one are found.
//
// Entries are found by a 64-bit hash with a random seed, and the whole key is compared; of two keys
// with one hash the later replaces the earlier. That costs one hash of the key instead of two (one
// for the shard, one for the map).
//
// An entry that has an owner makes room for others if its owner has the most entries, so that no
// owner evicts the entries of an owner who has few.
//
// It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	seed       maphash.Seed
	start      time.Time // zero of the cache's clock
	perShard   int
	generation atomic.Uint64
	shards     [cacheShards]cacheShard[K, V]
}

type cacheShard[K comparable, V any] struct {
	mu struct {
		sync.RWMutex
		entries map[uint64]*Entry[K, V] // entries are immutable
		owned   map[string]int          // number of entries by owner
	}
}

// Entry is a value of a Cache. It is fresh for TTL and found as a stale one for Keep, if that is
// longer. It is immutable once it is in a cache.
type Entry[K comparable, V any] struct {
	Key        K
	Owner      string // "" for none
	Value      V
	Generation uint64 // as of when the review began
	Added      int64  // by the cache's clock
	TTL, Keep  time.Duration
}

// Fresh reports whether the entry is fresh at a time of the cache's clock.
func (e *Entry[K, V]) Fresh(now int64) bool { return now < e.Added+int64(e.TTL) }

func (e *Entry[K, V]) expired(now int64) bool { return now >= e.Added+int64(max(e.TTL, e.Keep)) }

// NewCache returns a cache of at most size entries, but at least one a shard.
func NewCache[K comparable, V any](size int) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), start: time.Now(), perShard: max(1, size/cacheShards)}
	for i := range c.shards {
		c.shards[i].mu.entries = make(map[uint64]*Entry[K, V])
		c.shards[i].mu.owned = make(map[string]int)
	}
	return c
}

// Now returns the time of the cache's clock, in nanoseconds.
func (c *Cache[K, V]) Now() int64 { return int64(time.Since(c.start)) }

// Generation returns the current generation.
func (c *Cache[K, V]) Generation() uint64 { return c.generation.Load() }

// Get returns the value of key if it is fresh.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	now := c.Now()
	if e := c.find(key, now); e != nil && e.Fresh(now) {
		return e.Value, true
	}
	return value, false
}

// Find returns the entry of key, fresh or stale, or nil.
func (c *Cache[K, V]) Find(key K) *Entry[K, V] { return c.find(key, c.Now()) }

func (c *Cache[K, V]) find(key K, now int64) *Entry[K, V] {
	h := maphash.Comparable(c.seed, key)
	s := &c.shards[h%cacheShards]
	s.mu.RLock()
	e := s.mu.entries[h]
	s.mu.RUnlock()
	if e == nil || e.Generation != c.generation.Load() || e.Key != key || e.expired(now) {
		return nil
	}
	return e
}

// All returns the entries, fresh or stale.
func (c *Cache[K, V]) All() iter.Seq[*Entry[K, V]] {
	return func(yield func(*Entry[K, V]) bool) {
		now := c.Now()
		for i := range c.shards {
			s := &c.shards[i]
			s.mu.RLock()
			entries := slices.Collect(maps.Values(s.mu.entries))
			s.mu.RUnlock()
			for _, e := range entries {
				if e.Generation == c.generation.Load() && !e.expired(now) && !yield(e) {
					return
				}
			}
		}
	}
}

// Put adds an entry, unless it belongs to an earlier generation.
func (c *Cache[K, V]) Put(e Entry[K, V]) {
	now := c.Now()
	if e.expired(now) {
		return
	}
	h := maphash.Comparable(c.seed, e.Key)
	s := &c.shards[h%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Generation != c.generation.Load() {
		return
	}
	if _, replaces := s.mu.entries[h]; replaces {
		s.dropLocked(h)
	} else if len(s.mu.entries) >= c.perShard {
		s.evictLocked(now, e.Owner)
	}
	s.mu.entries[h] = &e
	if e.Owner != "" {
		s.mu.owned[e.Owner]++
	}
}

func (s *cacheShard[K, V]) dropLocked(h uint64) {
	owner := s.mu.entries[h].Owner
	delete(s.mu.entries, h)
	if owner == "" {
		return
	}
	if s.mu.owned[owner]--; s.mu.owned[owner] == 0 {
		delete(s.mu.owned, owner)
	}
}

// evictLocked makes room for an entry of owner: it drops the expired entries of a small random
// sample, or else the one that expires first, of the sample or of the owner with the most entries.
func (s *cacheShard[K, V]) evictLocked(now int64, owner string) {
	var first uint64
	firstExpires, seen, dropped := int64(0), 0, 0
	most := s.largestOwnerLocked(owner)
	for h, e := range s.mu.entries { // in random order
		expires := e.Added + int64(e.TTL)
		switch {
		case e.expired(now):
			s.dropLocked(h)
			dropped++
		case most != "" && e.Owner != most:
			continue
		case firstExpires == 0 || expires < firstExpires:
			first, firstExpires = h, expires
		}
		if seen++; seen == EvictionSample {
			break
		}
	}
	if dropped == 0 {
		s.dropLocked(first)
	}
}

// largestOwnerLocked returns the owner with the most entries, preferably owner; "" if no entry has
// an owner.
func (s *cacheShard[K, V]) largestOwnerLocked(owner string) string {
	most := s.mu.owned[owner]
	if most == 0 {
		owner = ""
	}
	for other, n := range s.mu.owned {
		if n > most {
			owner, most = other, n
		}
	}
	return owner
}

// DropAll starts a new generation. After it returns, no older entry is found or added.
func (c *Cache[K, V]) DropAll() {
	c.generation.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.mu.entries)
		clear(s.mu.owned)
		s.mu.Unlock()
	}
}

// Len returns the number of entries, expired ones included.
func (c *Cache[K, V]) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.mu.entries)
		s.mu.RUnlock()
	}
	return n
}
