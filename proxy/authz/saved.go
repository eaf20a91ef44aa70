package authz

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// SavedDecisions are the upstream's last decisions in a form that is kept over a restart.
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
	Said       time.Time  `json:"said"` // when it was made
}

func (d *offlineDecision) saved() SavedDecision {
	s := SavedDecision{
		Name: d.name, User: d.key.user[:], Attributes: d.attributes,
		Allowed: d.decision.Allowed, Reason: d.decision.Reason, Said: time.Now().Add(-time.Since(d.made)),
	}
	if d.key.isLarge() {
		s.Large = d.key.large[:]
	}
	return s
}

// Save stores the last decisions in saved, up to about size bytes, which users share: the denials of
// each user come first, then the latest permissions.
func (a *Authorizer) Save(saved *SavedDecisions, size int) {
	all, deniedUntil := a.offline.list(a.Generation(), a.reviews.OfflineTTL())
	slices.SortFunc(all, func(a, b *offlineDecision) int {
		switch {
		case a.decision.Allowed == b.decision.Allowed:
			return b.made.Compare(a.made)
		case b.decision.Allowed:
			return -1
		}
		return 1
	})
	fit, rest := review.Fit(all, size, func(d *offlineDecision) (string, int) { return d.name, review.JSONSize(d.saved()) })
	for _, d := range fit {
		saved.Decisions = append(saved.Decisions, d.saved())
	}
	for _, d := range rest {
		if !d.decision.Allowed {
			deniedUntil[d.name] = later(deniedUntil[d.name], d.until)
		}
	}
	saved.Forgotten = deniedUntil
}

// Restore adds the decisions that an earlier process saved. Denials count for the rest of their
// time, permissions for that time or until Invalidate. It must be called before the first request.
func (a *Authorizer) Restore(saved *SavedDecisions) {
	ttl := a.reviews.OfflineTTL()
	if ttl == 0 {
		return
	}
	a.offline.restoreDenied(saved.Forgotten, time.Now().Add(ttl))
	for i := range saved.Decisions {
		s := &saved.Decisions[i]
		age, ok := review.Age(s.Said, ttl)
		if !ok || len(s.User) != len(authn.Digest{}) {
			continue
		}
		key := Key{user: authn.Digest(s.User), a: s.Attributes}
		if len(s.Large) == len(authn.Digest{}) {
			key = Key{user: key.user, large: authn.Digest(s.Large)}
		}
		made := time.Now().Add(-age)
		d := Decision{Allowed: s.Allowed, Reason: s.Reason, Generation: a.Generation()}
		a.offline.put(&offlineDecision{name: s.Name, key: key, attributes: s.Attributes, decision: d, made: made, until: made.Add(ttl)})
	}
}

// Forget drops the decisions, denials included.
func (a *Authorizer) Forget() {
	a.offline.clear(true)
	a.Invalidate()
}

// list returns the decisions that another process can use: denials, and permissions that no RBAC
// object has changed since; and until when evicted denials would have counted, by users.
func (c *offlineCache) list(generation uint64, ttl time.Duration) (all []*offlineDecision, deniedUntil map[string]time.Time) {
	now := time.Now()
	deniedUntil = make(map[string]time.Time)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if now.Before(c.mu.deniedUntil) {
		deniedUntil[""] = c.mu.deniedUntil
	}
	for name, u := range c.mu.users {
		if now.Before(u.deniedUntil) {
			deniedUntil[name] = u.deniedUntil
		}
	}
	for _, d := range c.mu.decisions {
		if now.Before(d.until) && (!d.decision.Allowed || d.until.Sub(d.made) >= ttl && d.decision.Generation == generation) {
			all = append(all, d)
		}
	}
	return all, deniedUntil
}

// restoreDenied adds until when evicted denials would have counted, limited to latest.
func (c *offlineCache) restoreDenied(until map[string]time.Time, latest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range until {
		if t.After(latest) {
			t = latest
		}
		if name == "" {
			c.mu.deniedUntil = t
		} else {
			c.userLocked(name).deniedUntil = t
		}
	}
}
