package visible

import (
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// A set costs as much as setCost names, besides its names. selectorBytes of its selectors, which
	// may be long, cost as much as a name.
	setCost       = 32
	selectorBytes = 64
	// The times at which timesPerName namespaces were confirmed cost as much as a name, and so do
	// deniedPerName denied namespaces.
	timesPerName  = 4
	deniedPerName = 2
	// evictionTries limits the search for sets to drop.
	evictionTries = 64
)

// setCache caches sets, and accounts for those that watches follow. Equal namespaces of a user are
// stored once. It is safe for concurrent use.
type setCache struct {
	max int // names

	mu struct {
		sync.Mutex
		sets  map[authz.Key]*cachedSet
		users map[string]*userSets // by name
		cost  int
	}
}

// cachedSet is guarded by setCache.mu.
type cachedSet struct {
	set  *Set
	used time.Time
}

// userSets are the sets of one user, cached or followed. They are guarded by setCache.mu.
type userSets struct {
	sets   map[authz.Key]*cachedSet
	shared map[string]*sharedNamespaces // by ID
	times  map[*reviewed]int            // number of sets with them as confirmed or denied
	cost   int
}

// sharedNamespaces are namespaces that several sets with the same contents share; sets counts them.
type sharedNamespaces struct {
	namespaces *object.Namespaces
	sets       int
}

func newSetCache(limit int) *setCache {
	c := &setCache{max: limit}
	c.mu.sets = make(map[authz.Key]*cachedSet)
	c.mu.users = make(map[string]*userSets)
	return c
}

// share is what one user may have.
func (c *setCache) share() int { return c.max / 4 }

// maxNames is how many namespaces a set may have, with the times at which they were confirmed.
func (c *setCache) maxNames() int { return (c.share() - setCost) * timesPerName / (timesPerName + 1) }

// get returns the set of key, or nil. use counts as a use of it.
func (c *setCache) get(key authz.Key, use bool) *Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached := c.mu.sets[key]
	if cached == nil {
		return nil
	}
	if use {
		cached.used = time.Now()
	}
	return cached.set
}

// put caches s, which no other goroutine has yet, and replaces the set of the same key. It does
// nothing without room for s.
func (c *setCache) put(s *Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.mu.sets[s.key]; before != nil {
		c.dropLocked(before)
	}
	if !c.enterLocked(s) {
		return
	}
	u := c.mu.users[s.user.GetName()]
	s.Namespaces = u.shared[s.Namespaces.ID()].namespaces
	cached := &cachedSet{set: s, used: time.Now()}
	c.mu.sets[s.key], u.sets[s.key] = cached, cached
}

// hold accounts for a watch of s until release; false if there is no room.
func (c *setCache) hold(s *Set) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enterLocked(s)
}

func (c *setCache) release(s *Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(s)
}

// enterLocked accounts for s, once there is room.
func (c *setCache) enterLocked(s *Set) bool {
	name, id := s.user.GetName(), s.Namespaces.ID()
	for tries := 0; ; tries++ {
		u := c.mu.users[name]
		if u == nil {
			u = &userSets{sets: make(map[authz.Key]*cachedSet), shared: make(map[string]*sharedNamespaces), times: make(map[*reviewed]int)}
			c.mu.users[name] = u
		}
		cost := u.costOf(s)
		var full map[authz.Key]*cachedSet
		switch {
		case u.cost+cost > c.share():
			full = u.sets
		case c.mu.cost+cost > c.max:
			full = c.mu.sets
		default:
			if u.shared[id] == nil {
				u.shared[id] = &sharedNamespaces{namespaces: s.Namespaces}
			}
			u.shared[id].sets++
			u.times[s.confirmed]++
			u.times[s.denied]++
			u.cost += cost
			c.mu.cost += cost
			return true
		}
		if tries == evictionTries || !c.evictLocked(full) {
			c.forgetLocked(name, u)
			return false
		}
	}
}

// costOf returns what s costs besides what is accounted for already.
func (u *userSets) costOf(s *Set) int {
	cost := setCost + s.attributes.Size()/selectorBytes
	if u.shared[s.Namespaces.ID()] == nil {
		cost += s.Namespaces.Len()
	}
	if u.times[s.confirmed] == 0 {
		cost += s.Namespaces.Len() / timesPerName
	}
	if u.times[s.denied] == 0 {
		cost += len(s.denied.names) / deniedPerName
	}
	return cost
}

// leaveLocked undoes enterLocked.
func (c *setCache) leaveLocked(s *Set) {
	name, id := s.user.GetName(), s.Namespaces.ID()
	u := c.mu.users[name]
	if u.shared[id].sets--; u.shared[id].sets == 0 {
		delete(u.shared, id)
	}
	for _, times := range []*reviewed{s.confirmed, s.denied} {
		if u.times[times]--; u.times[times] == 0 {
			delete(u.times, times)
		}
	}
	cost := u.costOf(s)
	u.cost -= cost
	c.mu.cost -= cost
	c.forgetLocked(name, u)
}

func (c *setCache) forgetLocked(name string, u *userSets) {
	if u.cost == 0 {
		delete(c.mu.users, name)
	}
}

func (c *setCache) dropLocked(cached *cachedSet) {
	delete(c.mu.sets, cached.set.key)
	delete(c.mu.users[cached.set.user.GetName()].sets, cached.set.key)
	c.leaveLocked(cached.set)
}

// evictLocked drops the least recently used one of a sample of sets. It returns false without any.
func (c *setCache) evictLocked(sets map[authz.Key]*cachedSet) bool {
	var victim *cachedSet
	seen := 0
	for _, cached := range sets { // in random order
		if victim == nil || cached.used.Before(victim.used) {
			victim = cached
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	if victim == nil {
		return false
	}
	c.dropLocked(victim)
	return true
}
