package authz

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// SavedDecisions are the upstream's last decisions in a form that is saved for a restart.
type SavedDecisions struct {
	Decisions []SavedDecision `json:"decisions,omitempty"`
	// Forgotten is until when evicted denials would have counted, by users; "" stands for all users.
	Forgotten map[string]time.Time `json:"forgotten,omitempty"`
}

// SavedDecision is a decision about a user, known by name and digest.
type SavedDecision struct {
	Name       string     `json:"name"`
	User       []byte     `json:"user"`
	Attributes Attributes `json:"attributes"`
	Large      []byte     `json:"large,omitempty"` // digest of attributes that are incomplete
	Allowed    bool       `json:"allowed,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Decided    time.Time  `json:"said"` // when it was made
}

// savedOf returns a decision that was made so long ago. Only the key of a permission is needed.
func savedOf(name string, key Key, attributes Attributes, d Decision, age time.Duration) SavedDecision {
	s := SavedDecision{
		Name: name, User: slices.Clone(key.user[:]), Attributes: attributes,
		Allowed: d.Allowed, Reason: d.Reason, Decided: time.Now().Add(-age),
	}
	if key.isLarge() {
		s.Large = slices.Clone(key.large[:])
	}
	return s
}

// Save stores the last decisions in saved, up to about size bytes, which users share: the denials of
// each user come first, then the latest permissions, unless an RBAC object has changed since.
func (a *Authorizer) Save(saved *SavedDecisions, size int) {
	all, ttl := a.denials.save(saved), a.reviews.OfflineTTL()
	now := a.Clock()
	var permissions []SavedDecision
	for e := range a.decisions.All() {
		if e.Value.Allowed && e.Keep >= ttl {
			permissions = append(permissions, savedOf(e.Owner, e.Key, e.Key.a, e.Value, time.Duration(now-e.Added)))
		}
	}
	for _, list := range [][]SavedDecision{all, permissions} {
		slices.SortFunc(list, func(a, b SavedDecision) int { return b.Decided.Compare(a.Decided) })
	}
	fit, rest := review.Fit(append(all, permissions...), size, func(d SavedDecision) (string, int) { return d.Name, review.JSONSize(d) })
	saved.Decisions = fit
	for _, d := range rest {
		if !d.Allowed {
			saved.Forgotten[d.Name] = later(saved.Forgotten[d.Name], d.Decided.Add(ttl))
		}
	}
}

// Restore adds the decisions that an earlier process saved. Denials count for the rest of their
// time, permissions for that time or until Invalidate. It must be called before the first request.
func (a *Authorizer) Restore(saved *SavedDecisions) {
	ttl := a.reviews.OfflineTTL()
	if ttl == 0 {
		return
	}
	a.denials.restoreEvicted(saved.Forgotten, time.Now().Add(ttl))
	for i := range saved.Decisions {
		s := &saved.Decisions[i]
		age, ok := review.Age(s.Decided, ttl)
		if !ok || len(s.User) != len(authn.Digest{}) {
			continue
		}
		key := Key{user: authn.Digest(s.User), a: s.Attributes}
		if len(s.Large) == len(authn.Digest{}) {
			key = Key{user: key.user, large: authn.Digest(s.Large)}
		}
		if s.Allowed {
			a.decisions.Put(review.Entry[Key, Decision]{
				Key: key, Owner: s.Name, Value: Decision{Allowed: true, Reason: s.Reason, Generation: a.Generation()},
				Generation: a.Generation(), Added: a.Clock() - int64(age), Keep: ttl,
			})
			continue
		}
		a.denials.put(&denial{name: s.Name, key: key, attributes: s.Attributes, reason: s.Reason, made: time.Now().Add(-age), until: time.Now().Add(ttl - age)})
	}
}

// Forget drops the decisions, denials included.
func (a *Authorizer) Forget() {
	a.denials.clear()
	a.Invalidate()
}

// save returns the denials, and stores until when evicted ones would have counted.
func (c *denials) save(saved *SavedDecisions) (all []SavedDecision) {
	now := time.Now()
	saved.Forgotten = make(map[string]time.Time)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if now.Before(c.mu.evictedUntil) {
		saved.Forgotten[""] = c.mu.evictedUntil
	}
	for name, u := range c.mu.users {
		if now.Before(u.evictedUntil) {
			saved.Forgotten[name] = u.evictedUntil
		}
		for _, d := range u.byKey {
			if now.Before(d.until) {
				all = append(all, savedOf(name, d.key, d.attributes, Decision{Reason: d.reason}, now.Sub(d.made)))
			}
		}
	}
	return all
}

// restoreEvicted adds until when evicted denials would have counted, limited to latest.
func (c *denials) restoreEvicted(until map[string]time.Time, latest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range until {
		if t.After(latest) {
			t = latest
		}
		if name == "" {
			c.mu.evictedUntil = t
		} else {
			c.userLocked(name).evictedUntil = t
		}
	}
}
