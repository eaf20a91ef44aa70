package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// offlineCache holds the upstream's last decisions for the time in which it is unavailable. No user
// can evict the decisions of a user, by name, who has fewer. It is safe for concurrent use.
type offlineCache struct {
	max int
	mu  struct {
		sync.RWMutex
		decisions map[Key]*offlineDecision // at most max
		users     map[string]*offlineUser  // with decisions, or with evicted denials
		// deniedUntil is that of offlineUser, for users without decisions.
		deniedUntil time.Time
	}
}

// offlineUser holds the decisions about one user, whatever credentials the user had. It is guarded
// by offlineCache.mu.
type offlineUser struct {
	name      string
	decisions map[Key]*offlineDecision
	denials   map[target]map[*offlineDecision]struct{}
	// deniedUntil is until when an evicted denial would have counted.
	deniedUntil time.Time
}

// offlineDecision is a decision of the upstream. It is immutable.
type offlineDecision struct {
	name string // of the user
	key  Key
	// attributes are those of the key. If the key has a digest of them, they hold only what target
	// needs, shortened: the client chooses how large they are.
	attributes  Attributes
	decision    Decision
	made, until time.Time
}

// target is what an action is about, whatever the verb, version, object and namespace.
type target struct{ group, resource, subresource, path string }

func targetOf(a *Attributes) target {
	return target{shorten(a.APIGroup), shorten(a.Resource), shorten(a.Subresource), shorten(a.Path)}
}

// shorten returns s, or a digest of a long s.
func shorten(s string) string {
	if len(s) <= 256 {
		return s
	}
	hash := sha256.Sum256([]byte(s))
	return hex.EncodeToString(hash[:])
}

func newOfflineCache(size int) *offlineCache {
	c := &offlineCache{max: max(1, size)}
	c.mu.decisions = make(map[Key]*offlineDecision)
	c.mu.users = make(map[string]*offlineUser)
	return c
}

// get returns the last decision if it still counts.
func (c *offlineCache) get(key Key) (Decision, bool) {
	c.mu.RLock()
	d := c.mu.decisions[key]
	c.mu.RUnlock()
	if d == nil || !time.Now().Before(d.until) {
		return Decision{}, false
	}
	return d.decision, true
}

// put replaces the last decision about the same. It takes d over, whose strings must be clones, and
// reports whether d differs from the decision before.
func (c *offlineCache) put(d *offlineDecision) (changed bool) {
	at := targetOf(&d.attributes)
	if d.key.isLarge() {
		d.attributes = Attributes{
			ResourceRequest: d.attributes.ResourceRequest,
			APIGroup:        at.group, Resource: at.resource, Subresource: at.subresource, Path: at.path,
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.userLocked(d.name)
	last := c.mu.decisions[d.key]
	switch {
	case last != nil:
		c.dropLocked(last)
	case len(c.mu.decisions) >= c.max:
		c.evictLocked(u)
	}
	c.mu.decisions[d.key], u.decisions[d.key] = d, d
	if !d.decision.Allowed {
		if u.denials[at] == nil {
			u.denials[at] = make(map[*offlineDecision]struct{})
		}
		u.denials[at][d] = struct{}{}
	}
	return last == nil || last.decision.Allowed != d.decision.Allowed || last.decision.Generation != d.decision.Generation
}

// userLocked returns the decisions about a user, adding the user if necessary.
func (c *offlineCache) userLocked(name string) *offlineUser {
	u := c.mu.users[name]
	if u == nil {
		u = &offlineUser{name: name, decisions: make(map[Key]*offlineDecision), denials: make(map[target]map[*offlineDecision]struct{})}
		c.mu.users[name] = u
	}
	return u
}

func (c *offlineCache) dropLocked(d *offlineDecision) {
	u, at := c.mu.users[d.name], targetOf(&d.attributes)
	delete(c.mu.decisions, d.key)
	delete(u.decisions, d.key)
	if delete(u.denials[at], d); len(u.denials[at]) == 0 {
		delete(u.denials, at)
	}
}

// evictLocked drops a decision to make room for one about u: one that no longer counts, or one about
// the user with the most decisions, a permission rather than a denial, an old one rather than a new
// one.
func (c *offlineCache) evictLocked(u *offlineUser) {
	d := c.victimLocked(u)
	from := c.mu.users[d.name]
	if !d.decision.Allowed {
		from.deniedUntil = later(from.deniedUntil, d.until)
	}
	c.dropLocked(d)
	if len(from.decisions) == 0 && from != u {
		delete(c.mu.users, from.name)
		c.mu.deniedUntil = later(c.mu.deniedUntil, from.deniedUntil)
	}
}

func (c *offlineCache) victimLocked(u *offlineUser) (victim *offlineDecision) {
	now, seen, most := time.Now(), 0, u
	for _, d := range c.mu.decisions { // in random order: the user with the most is met first
		if !now.Before(d.until) {
			return d
		}
		if of := c.mu.users[d.name]; len(of.decisions) > len(most.decisions) {
			most = of
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	seen = 0
	for _, d := range most.decisions {
		if victim == nil || d.evictedBefore(victim) {
			victim = d
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	return victim
}

// evictedBefore reports which of two decisions is evicted first.
func (d *offlineDecision) evictedBefore(other *offlineDecision) bool {
	if d.decision.Allowed != other.decision.Allowed {
		return d.decision.Allowed
	}
	return d.until.Before(other.until)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// denies reports that rules must not decide a, whatever they allow, because the upstream denied what
// a may be a part of, or the other way round: another action on the same in the same namespace, with
// any credentials of the user; or there, if a is about all namespaces. A denial for all namespaces
// says nothing about a single one if rules would have denied it, too: allow tells that.
func (c *offlineCache) denies(name string, a *Attributes, allow func(Attributes) bool) bool {
	now := time.Now()
	var everywhere []Attributes
	c.mu.RLock()
	u := c.mu.users[name]
	denied := now.Before(c.mu.deniedUntil) || u != nil && now.Before(u.deniedUntil)
	if u != nil && !denied {
		for d := range u.denials[targetOf(a)] {
			switch {
			case !now.Before(d.until):
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

// clear drops all decisions. Unless forget is set, rules do not allow what was denied before the
// denial would have expired.
func (c *offlineCache) clear(forget bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := c.mu.deniedUntil
	for _, u := range c.mu.users {
		until = later(until, u.deniedUntil)
	}
	for _, d := range c.mu.decisions {
		if !d.decision.Allowed {
			until = later(until, d.until)
		}
	}
	if forget {
		until = time.Time{}
	}
	c.mu.deniedUntil = until
	clear(c.mu.decisions)
	clear(c.mu.users)
}

// len returns the number of decisions, including those that no longer count.
func (c *offlineCache) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.decisions)
}
