package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"
)

// denials holds the upstream's last denials for times when it is unavailable. Unlike permissions,
// denials stay valid when RBAC objects change. A user's requests cannot evict the denials of
// another user who has fewer. It is safe for concurrent use.
type denials struct {
	max int
	mu  struct {
		sync.RWMutex
		users map[string]*userDenials // with denials, or with evicted ones
		size  int                     // denials of all users, at most max
		// evictedUntil is userDenials.evictedUntil for users without denials.
		evictedUntil time.Time
		swept        time.Time // when expired denials were last dropped
	}
}

// userDenials are the denials of one user, whatever the credentials. They are guarded by
// denials.mu.
type userDenials struct {
	byKey map[Key]*denial
	// evictedUntil is until when an evicted denial would have counted.
	evictedUntil time.Time
}

// denial is immutable.
type denial struct {
	name string // of the user
	key  Key
	// attributes are the attributes of the key. If the key has only a digest of them, attributes
	// hold just their target, shortened, because the client chooses how large they are.
	attributes  Attributes
	target      Attributes // of attributes, set by put
	reason      string
	made, until time.Time
}

// target returns what an action is about, whatever the verb, version, object and namespace.
func (a *Attributes) target() Attributes {
	return Attributes{
		ResourceRequest: a.ResourceRequest,
		APIGroup:        shorten(a.APIGroup), Resource: shorten(a.Resource), Subresource: shorten(a.Subresource), Path: shorten(a.Path),
	}
}

// shorten returns s, or a digest of a long s.
func shorten(s string) string {
	if len(s) <= 256 {
		return s
	}
	hash := sha256.Sum256([]byte(s))
	return hex.EncodeToString(hash[:])
}

func newDenials(size int) *denials {
	c := &denials{max: max(1, size)}
	c.mu.users = make(map[string]*userDenials)
	return c
}

// get returns the denial of key, to a user of that name, if it still counts.
func (c *denials) get(name string, key Key) *denial {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if u := c.mu.users[name]; u != nil && u.byKey[key] != nil && time.Now().Before(u.byKey[key].until) {
		return u.byKey[key]
	}
	return nil
}

// put replaces the last denial of the same. It takes d over, whose strings must be clones.
func (c *denials) put(d *denial) {
	d.target = d.attributes.target()
	if d.key.isLarge() {
		d.attributes = d.target
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.userLocked(d.name)
	if u.byKey[d.key] == nil {
		if c.mu.size >= c.max {
			c.sweepLocked(u)
		}
		if c.mu.size >= c.max {
			c.evictLocked(u)
		}
		c.mu.size++
	}
	u.byKey[d.key] = d
}

// drop forgets the denial of key: the upstream has allowed the same.
func (c *denials) drop(name string, key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.mu.users[name]; u != nil && u.byKey[key] != nil {
		delete(u.byKey, key)
		c.mu.size--
		c.dropEmptyLocked(name, u)
	}
}

// dropEmptyLocked drops a user without denials.
func (c *denials) dropEmptyLocked(name string, u *userDenials) {
	if len(u.byKey) == 0 {
		delete(c.mu.users, name)
		c.mu.evictedUntil = later(c.mu.evictedUntil, u.evictedUntil)
	}
}

// userLocked returns the denials of a user, adding the user if necessary.
func (c *denials) userLocked(name string) *userDenials {
	u := c.mu.users[name]
	if u == nil {
		u = &userDenials{byKey: make(map[Key]*denial)}
		c.mu.users[name] = u
	}
	return u
}

// sweepPeriod is how often expired denials are looked for, at most.
const sweepPeriod = time.Second

// sweepLocked drops expired denials, but not the user for whom there is to be room.
func (c *denials) sweepLocked(room *userDenials) {
	now := time.Now()
	if now.Sub(c.mu.swept) < sweepPeriod {
		return
	}
	c.mu.swept = now
	for name, u := range c.mu.users {
		before := len(u.byKey)
		maps.DeleteFunc(u.byKey, func(_ Key, d *denial) bool { return !now.Before(d.until) })
		c.mu.size -= before - len(u.byKey)
		if u != room {
			c.dropEmptyLocked(name, u)
		}
	}
}

// evictLocked drops a denial to make room for one of u: of the user with the most, the one that
// expires first.
func (c *denials) evictLocked(u *userDenials) {
	from := u
	for _, other := range c.mu.users {
		if len(other.byKey) > len(from.byKey) {
			from = other
		}
	}
	var victim *denial
	for _, d := range from.byKey {
		if victim == nil || d.until.Before(victim.until) {
			victim = d
		}
	}
	delete(from.byKey, victim.key)
	c.mu.size--
	from.evictedUntil = later(from.evictedUntil, victim.until)
	if from != u {
		c.dropEmptyLocked(victim.name, from)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// contradict reports that rules must not decide a, whatever they allow, because the upstream denied
// what a may be a part of, or the other way round: another action on the same in the same namespace,
// with any credentials of the user; or there, if a is about all namespaces. A denial for all
// namespaces says nothing about a single one if rules would have denied it, too: allow tells that.
func (c *denials) contradict(name string, a *Attributes, allow func(Attributes) bool) bool {
	now, target := time.Now(), a.target()
	var everywhere []Attributes
	c.mu.RLock()
	u := c.mu.users[name]
	denied := now.Before(c.mu.evictedUntil) || u != nil && now.Before(u.evictedUntil)
	if u != nil && !denied {
		for _, d := range u.byKey {
			switch {
			case !now.Before(d.until), d.target != target:
			case a.Namespace == "", a.Namespace == d.attributes.Namespace, d.key.isLarge():
				denied = true
			case d.attributes.Namespace == "":
				everywhere = append(everywhere, d.attributes)
			}
		}
	}
	c.mu.RUnlock()
	return denied || slices.ContainsFunc(everywhere, allow)
}

// clear drops all denials.
func (c *denials) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.mu.users)
	c.mu.size, c.mu.evictedUntil = 0, time.Time{}
}

// len returns the number of denials, including those that no longer count.
func (c *denials) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.size
}
