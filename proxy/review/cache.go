package review

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// cacheShards is a power of two, so that a shard is picked by a mask.
const cacheShards = 16

// EvictionSample is how many entries are looked at to find one to evict.
const EvictionSample = 8

// Cache is a bounded map whose entries expire. All entries can be dropped at
// once: an entry belongs to the generation in which the question it answers was
// asked, and only those of the current generation are found.
//
// Entries are found by a 64-bit hash with a random seed, and the whole key is
// compared; of two keys with one hash the later replaces the earlier. That costs
// one hash of the key instead of two (one for the shard, one for the map).
//
// Of entries that have an owner, those of whoever has most make room, so that nobody pushes
// out what others have few of.
//
// It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	seed     maphash.Seed
	base     time.Time // the clock of the entries counts from here
	perShard int
	gen      atomic.Uint64
	shards   [cacheShards]cacheShard[K, V]
}

type cacheShard[K comparable, V any] struct {
	mu struct {
		sync.RWMutex
		entries map[uint64]*cacheEntry[K, V] // guarded by mu; entries are immutable
		owned   map[string]int               // how many each owner has
	}
}

// cacheEntry holds a value until expires; until kept it may still be had as a
// stale one. It was put at a time. All are nanoseconds of the cache's clock.
type cacheEntry[K comparable, V any] struct {
	key                K
	owner              string // "" for none
	value              V
	gen                uint64
	put, expires, kept int64
}

// NewCache returns a cache of at most size entries (at least one a shard).
func NewCache[K comparable, V any](size int) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), base: time.Now(), perShard: max(1, size/cacheShards)}
	for i := range c.shards {
		c.shards[i].mu.entries = make(map[uint64]*cacheEntry[K, V])
		c.shards[i].mu.owned = make(map[string]int)
	}
	return c
}

func (c *Cache[K, V]) Now() int64 { return int64(time.Since(c.base)) }

// Generation is the current generation, to be read before a question is asked
// whose answer will be put.
func (c *Cache[K, V]) Generation() uint64 { return c.gen.Load() }

// Get returns the fresh value of key.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	e := c.find(key)
	if e == nil || c.Now() >= e.expires {
		return value, false
	}
	return e.value, true
}

// GetPut is get, and tells when the value was put.
func (c *Cache[K, V]) GetPut(key K) (value V, put int64, ok bool) {
	e := c.find(key)
	if e == nil || c.Now() >= e.expires {
		return value, 0, false
	}
	return e.value, e.put, true
}

// GetStale returns the value of key even when it is no longer fresh, as long as
// it is kept.
func (c *Cache[K, V]) GetStale(key K) (value V, ok bool) {
	e := c.find(key)
	if e == nil || c.Now() >= max(e.kept, e.expires) {
		return value, false
	}
	return e.value, true
}

func (c *Cache[K, V]) find(key K) *cacheEntry[K, V] {
	h := maphash.Comparable(c.seed, key)
	s := &c.shards[h%cacheShards]
	s.mu.RLock()
	e := s.mu.entries[h]
	s.mu.RUnlock()
	if e == nil || e.gen != c.gen.Load() || e.key != key {
		return nil
	}
	return e
}

// Put stores a value that is fresh for ttl and kept for keep, unless a
// Generation has passed since gen.
func (c *Cache[K, V]) Put(key K, value V, gen uint64, ttl, keep time.Duration) {
	c.PutFor("", key, value, gen, ttl, keep)
}

// PutFor is put of a value that somebody owns.
func (c *Cache[K, V]) PutFor(owner string, key K, value V, gen uint64, ttl, keep time.Duration) {
	if ttl <= 0 && keep <= 0 {
		return
	}
	now := c.Now()
	c.enter(&cacheEntry[K, V]{key: key, owner: owner, value: value, gen: gen, put: now, expires: now + int64(ttl), kept: now + int64(keep)}, now)
}

// enter stores an entry, unless it is of an earlier generation.
func (c *Cache[K, V]) enter(e *cacheEntry[K, V], now int64) {
	h := maphash.Comparable(c.seed, e.key)
	s := &c.shards[h%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.gen != c.gen.Load() {
		return
	}
	if _, replaces := s.mu.entries[h]; replaces {
		s.drop(h)
	} else if len(s.mu.entries) >= c.perShard {
		s.evict(now, e.owner)
	}
	s.mu.entries[h] = e
	if e.owner != "" {
		s.mu.owned[e.owner]++
	}
}

// drop removes an entry. The caller holds mu.
func (s *cacheShard[K, V]) drop(h uint64) {
	owner := s.mu.entries[h].owner
	delete(s.mu.entries, h)
	if owner == "" {
		return
	}
	if s.mu.owned[owner]--; s.mu.owned[owner] == 0 {
		delete(s.mu.owned, owner)
	}
}

// Renew makes value, which is that of key but for marks, fresh for ttl, though not for longer
// than it is kept.
func (c *Cache[K, V]) Renew(key K, value V, ttl time.Duration) {
	if e := c.find(key); e != nil {
		now := c.Now()
		again := *e
		again.value, again.expires = value, min(now+int64(ttl), e.kept)
		c.enter(&again, now)
	}
}

// Each calls visit for what is kept, and with how long ago it was put.
func (c *Cache[K, V]) Each(visit func(key K, value V, age time.Duration)) {
	now := c.Now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		entries := slices.Collect(maps.Values(s.mu.entries))
		s.mu.RUnlock()
		for _, e := range entries {
			if e.gen == c.gen.Load() && now < e.kept {
				visit(e.key, e.value, time.Duration(now-e.put))
			}
		}
	}
}

// Search calls is for fresh values until it returns true.
func (c *Cache[K, V]) Search(is func(V) bool) {
	now := c.Now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		entries := slices.Collect(maps.Values(s.mu.entries))
		s.mu.RUnlock()
		for _, e := range entries {
			if e.gen == c.gen.Load() && now < e.expires && is(e.value) {
				return
			}
		}
	}
}

// Restore stores a value of an owner that was put so long ago, and kept for keep since: a stale one.
func (c *Cache[K, V]) Restore(owner string, key K, value V, age, keep time.Duration) {
	now := c.Now()
	put := now - int64(age)
	c.enter(&cacheEntry[K, V]{key: key, owner: owner, value: value, gen: c.Generation(), put: put, expires: put, kept: put + int64(keep)}, now)
}

// evict makes room for one entry of an owner: those found dead in a small random sample go,
// else the one that expires first, of the sample or of whoever owns most. The caller holds
// mu.
func (s *cacheShard[K, V]) evict(now int64, owner string) {
	var first uint64
	firstExpires, seen, dropped := int64(0), 0, 0
	most := s.ownerOfMost(owner)
	for h, e := range s.mu.entries { // in random order
		switch {
		case now >= max(e.kept, e.expires):
			s.drop(h)
			dropped++
		case most != "" && e.owner != most:
			continue
		case firstExpires == 0 || e.expires < firstExpires:
			first, firstExpires = h, e.expires
		}
		if seen++; seen == EvictionSample {
			break
		}
	}
	if dropped == 0 {
		s.drop(first)
	}
}

// ownerOfMost is who has the most entries, owner if nobody has more; "" if nobody owns any.
// The caller holds mu.
func (s *cacheShard[K, V]) ownerOfMost(owner string) string {
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

// DropAll begins a new generation. After it returns no older entry is found and
// none is put any more.
func (c *Cache[K, V]) DropAll() uint64 {
	gen := c.gen.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.mu.entries)
		clear(s.mu.owned)
		s.mu.Unlock()
	}
	return gen
}

// Len is the number of entries, dead ones included.
func (c *Cache[K, V]) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += len(s.mu.entries)
		s.mu.RUnlock()
	}
	return n
}
