package identity

import (
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Words are what the upstream said last of tokens and of permissions, in a form that can be
// kept over a restart. There is no token in them, but they tell who may do what.
type Words struct {
	// Secret keys the hashes of the tokens.
	Secret    []byte         `json:"secret"`
	Tokens    []TokenWord    `json:"tokens,omitempty"`
	Decisions []DecisionWord `json:"decisions,omitempty"`
	// Forgotten is until when there were refusals that had to make room, by users; "" is of
	// everybody.
	Forgotten map[string]time.Time `json:"forgotten,omitempty"`
}

// TokenWord says that the upstream accepted a token.
type TokenWord struct {
	Hash    []byte                    `json:"hash"`
	User    authenticationv1.UserInfo `json:"user"`
	Said    time.Time                 `json:"said"`
	Expires time.Time                 `json:"expires,omitzero"`
}

// DecisionWord is the upstream's decision about a user, known by a digest, and an action.
type DecisionWord struct {
	Name       string     `json:"name"`
	User       []byte     `json:"user"`
	Attributes Attributes `json:"attributes"`
	Large      []byte     `json:"large,omitempty"` // digest of attributes that are not all there
	Allowed    bool       `json:"allowed,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	Said       time.Time  `json:"said"`
}

// Words adds to words what is known of tokens, those that were accepted last first, up to
// about size bytes.
func (a *Authenticator) Words(words *Words, size int) {
	if a.tokens == nil {
		return
	}
	now := time.Now()
	words.Secret = a.tokens.secret[:]
	a.tokens.answers.each(func(key credentialKey, answer tokenAnswer, age time.Duration) {
		if u := answer.user; u != nil {
			words.Tokens = append(words.Tokens, TokenWord{Hash: slices.Clone(key[:]), User: u.review(), Said: now.Add(-age), Expires: answer.expires})
		}
	})
	slices.SortFunc(words.Tokens, func(a, b TokenWord) int { return b.Said.Compare(a.Said) })
	for i := range words.Tokens {
		if size -= words.Tokens[i].size(); size < 0 {
			words.Tokens = words.Tokens[:i]
			break
		}
	}
}

// review is what a TokenReview says of the user.
func (u *User) review() authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.info.Name, UID: u.info.UID, Groups: u.info.Groups}
	for key, values := range u.info.Extra {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue, len(u.info.Extra))
		}
		info.Extra[key] = values
	}
	return info
}

// wordSize is about what a word takes beside its strings.
const wordSize = 256

func (t *TokenWord) size() int {
	n := wordSize + len(t.User.Username) + len(t.User.UID)
	for _, group := range t.User.Groups {
		n += len(group)
	}
	for key, values := range t.User.Extra {
		n += len(key)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// Restore takes over what an earlier process knew of tokens. They count for what is left of
// their time, while the upstream cannot be asked. It is to be called before there are
// requests.
func (a *Authenticator) Restore(words *Words) {
	t := a.tokens
	if t == nil || len(words.Secret) != len(t.secret) {
		return
	}
	t.secret = [len(t.secret)]byte(words.Secret)
	for i := range words.Tokens {
		w := &words.Tokens[i]
		keep := t.opts.SuccessTTL + t.opts.OfflineTTL
		if age, ok := ageOf(w.Said, keep); ok && len(w.Hash) == len(credentialKey{}) {
			t.answers.restore(credentialKey(w.Hash), tokenAnswer{user: userOfReview(&w.User), expires: w.Expires}, age, keep)
		}
	}
}

// Forget forgets what the upstream said of tokens.
func (a *Authenticator) Forget() {
	if a.tokens != nil {
		a.tokens.answers.dropAll()
	}
}

// ageOf is how long ago something was said; ok is false when that is in the future, or longer
// ago than it counts.
func ageOf(said time.Time, keep time.Duration) (age time.Duration, ok bool) {
	age = time.Since(said)
	return age, age >= 0 && age < keep
}

// Words adds to words what is known of permissions: refusals first, then those that were
// given last, up to about size bytes.
func (a *Authorizer) Words(words *Words, size int) {
	all, forgotten := a.lastWords.list(a.decisions.generation(), a.opts.OfflineTTL)
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
	for _, word := range all {
		d := DecisionWord{
			Name: word.to.name, User: slices.Clone(word.key.user[:]), Attributes: word.attributes,
			Allowed: word.decision.Allowed, Reason: word.decision.Reason, Said: now.Add(-now.Sub(word.said)),
		}
		if word.key.large != (digest{}) {
			d.Large = slices.Clone(word.key.large[:])
		}
		size -= wordSize + word.attributes.size() + len(d.Name) + len(d.Reason)
		switch {
		case size >= 0:
			words.Decisions = append(words.Decisions, d)
		case !d.Allowed:
			words.Forgotten[d.Name] = later(words.Forgotten[d.Name], word.until)
		}
	}
}

// Restore takes over what an earlier process knew of permissions: refusals for what is left
// of their time, permissions for that or until Invalidate. It is to be called before there
// are requests.
func (a *Authorizer) Restore(words *Words) {
	if a.opts.OfflineTTL == 0 {
		return
	}
	a.lastWords.forget(words.Forgotten, a.opts.OfflineTTL)
	for i := range words.Decisions {
		w := &words.Decisions[i]
		age, ok := ageOf(w.Said, a.opts.OfflineTTL)
		if !ok || len(w.User) != len(digest{}) {
			continue
		}
		key := decisionKey{user: digest(w.User), a: w.Attributes}
		if len(w.Large) == len(digest{}) {
			key = decisionKey{user: key.user, large: digest(w.Large)}
		}
		said := time.Now().Add(-age)
		d := Decision{Allowed: w.Allowed, Reason: w.Reason, Generation: a.decisions.generation()}
		a.lastWords.put(w.Name, key, &w.Attributes, d, said, said.Add(a.opts.OfflineTTL))
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
		if now.Before(word.until) && word.until.Sub(word.said) >= ttl && (!word.decision.Allowed || word.decision.Generation == generation) {
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
