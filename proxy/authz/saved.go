package authz

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// SavedDecisions are what the upstream said last of permissions, in a form that can be kept over a restart.
type SavedDecisions struct {
	Decisions []SavedDecision `json:"decisions,omitempty"`
	// Forgotten is until when there were refusals that had to make room, by users; "" is of
	// everybody.
	Forgotten map[string]time.Time `json:"forgotten,omitempty"`
}

// SavedDecision is the upstream's decision about a user, known by a digest, and an action.
type SavedDecision struct {
	Name       string     `json:"name"`
	User       []byte     `json:"user"`
	Attributes Attributes `json:"attributes"`
	Large      []byte     `json:"large,omitempty"` // digest of attributes that are not all there
	Allowed    bool       `json:"allowed,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Said       time.Time  `json:"said"`
}

// Save adds to words what is known of permissions, up to about size bytes, of which users, by
// their names, have shares: of each refusals come first, and then those that were given last.
func (a *Authorizer) Save(words *SavedDecisions, size int) {
	all, forgotten := a.lastWords.list(a.decisions.Generation(), a.offlineTTL.Load())
	slices.SortFunc(all, func(a, b *lastWord) int {
		switch {
		case a.decision.Allowed == b.decision.Allowed:
			return b.said.Compare(a.said)
		case b.decision.Allowed:
			return -1
		}
		return 1
	})
	now := time.Now()
	words.Forgotten = forgotten
	fit, rest := review.Fit(all, size, func(word *lastWord) (string, int) { return word.to.name, word.writtenSize() })
	for _, word := range fit {
		d := SavedDecision{
			Name: word.to.name, User: slices.Clone(word.key.user[:]), Attributes: word.attributes,
			Allowed: word.decision.Allowed, Reason: word.decision.Reason, Said: now.Add(-now.Sub(word.said)),
		}
		if word.key.large != (authn.Digest{}) {
			d.Large = slices.Clone(word.key.large[:])
		}
		words.Decisions = append(words.Decisions, d)
	}
	for _, word := range rest {
		if !word.decision.Allowed {
			words.Forgotten[word.to.name] = later(words.Forgotten[word.to.name], word.until)
		}
	}
}

func (l *lastWord) writtenSize() int {
	n := review.EntrySize + review.JSONSize(l.to.name) + review.JSONSize(l.decision.Reason)
	for _, s := range l.attributes.strings() {
		n += review.JSONSize(*s)
	}
	return n
}

// Restore takes over what an earlier process knew of permissions: refusals for what is left
// of their time, permissions for that or until Invalidate. It is to be called before there
// are requests.
func (a *Authorizer) Restore(words *SavedDecisions) {
	if a.offlineTTL.Load() == 0 {
		return
	}
	a.lastWords.forget(words.Forgotten, a.offlineTTL.Load())
	for i := range words.Decisions {
		w := &words.Decisions[i]
		age, ok := review.Age(w.Said, a.offlineTTL.Load())
		if !ok || len(w.User) != len(authn.Digest{}) {
			continue
		}
		key := Key{user: authn.Digest(w.User), a: w.Attributes}
		if len(w.Large) == len(authn.Digest{}) {
			key = Key{user: key.user, large: authn.Digest(w.Large)}
		}
		said := time.Now().Add(-age)
		d := Decision{Allowed: w.Allowed, Reason: w.Reason, Generation: a.decisions.Generation()}
		a.lastWords.put(w.Name, key, &w.Attributes, d, said, said.Add(a.offlineTTL.Load()))
	}
}

// Forget forgets what the upstream decided.
func (a *Authorizer) Forget() {
	a.lastWords.clear()
	a.Invalidate()
}

// list returns the words that are of use to another process: refusals, and permissions that
// no RBAC object has changed since.
func (w *lastWords) list(generation uint64, ttl time.Duration) (all []*lastWord, forgotten map[string]time.Time) {
	now := time.Now()
	forgotten = make(map[string]time.Time)
	w.mu.RLock()
	defer w.mu.RUnlock()
	if now.Before(w.mu.forgotten) {
		forgotten[""] = w.mu.forgotten
	}
	for name, to := range w.mu.users {
		if now.Before(to.forgotten) {
			forgotten[name] = to.forgotten
		}
	}
	for _, word := range w.mu.words {
		if now.Before(word.until) && (!word.decision.Allowed || word.until.Sub(word.said) >= ttl && word.decision.Generation == generation) {
			all = append(all, word)
		}
	}
	return all, forgotten
}

// forget takes over until when refusals are missing.
func (w *lastWords) forget(until map[string]time.Time, ttl time.Duration) {
	most := time.Now().Add(ttl)
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range until {
		if t.After(most) {
			t = most
		}
		if name == "" {
			w.mu.forgotten = t
		} else {
			w.toLocked(name).forgotten = t
		}
	}
}
