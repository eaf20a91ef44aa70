package identity

import (
	"cmp"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Words are what the upstream said last of tokens and of permissions, in a form that can be
// kept over a restart. There is no token in them, but they tell who may do what.
type Words struct {
	// Secret keys the hashes of the tokens, Audiences are those that they were reviewed for.
	Secret    []byte         `json:"secret"`
	Audiences []string       `json:"audiences,omitempty"`
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

// Words adds to words what is known of tokens, up to about size bytes, of which users, by
// their names, have shares: of each those that were accepted last come first.
func (a *Authenticator) Words(words *Words, size int) {
	if a.tokens == nil {
		return
	}
	now := time.Now()
	words.Secret, words.Audiences = a.tokens.secret[:], a.opts.Audiences
	a.tokens.answers.each(func(key credentialKey, answer tokenAnswer, age time.Duration) {
		if u := answer.user; u != nil {
			words.Tokens = append(words.Tokens, TokenWord{Hash: slices.Clone(key[:]), User: u.review(), Said: now.Add(-age), Expires: answer.expires})
		}
	})
	slices.SortFunc(words.Tokens, func(a, b TokenWord) int { return b.Said.Compare(a.Said) })
	words.Tokens, _ = share(words.Tokens, size, func(t TokenWord) (string, int) { return t.User.Username, t.size() })
}

// share divides words into those that fit into size bytes, and the others: of each user the
// first ones fit, and whoever has much leaves room for those who have less. of tells whose
// word it is, and how large.
func share[W any](words []W, size int, of func(W) (user string, size int)) (fit, rest []W) {
	type place struct {
		word       W
		size, upTo int // bytes of the word, and of the user's words with it
	}
	places, used := make([]place, len(words)), make(map[string]int)
	for i, word := range words {
		user, n := of(word)
		used[user] += n
		places[i] = place{word, n, used[user]}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.upTo, b.upTo) })
	for _, p := range places {
		if size -= p.size; size >= 0 {
			fit = append(fit, p.word)
		} else {
			rest = append(rest, p.word)
		}
	}
	return fit, rest
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
	n := wordSize + writtenSize(t.User.Username) + writtenSize(t.User.UID)
	for _, group := range t.User.Groups {
		n += writtenSize(group)
	}
	for key, values := range t.User.Extra {
		n += writtenSize(key)
		for _, v := range values {
			n += writtenSize(v)
		}
	}
	return n
}

// writtenSize is how many bytes a string is in JSON, at most.
func writtenSize(s string) int {
	n := len(s) + 3
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' {
			n += len(`\u0000`) - 1
		}
	}
	return n
}

// Restore takes over what an earlier process knew of tokens. They count for what is left of
// their time, while the upstream cannot be asked. It is to be called before there are
// requests.
func (a *Authenticator) Restore(words *Words) {
	t := a.tokens
	if t == nil || len(words.Secret) != len(t.secret) || !slices.Equal(words.Audiences, a.opts.Audiences) {
		return
	}
	t.secret = [len(t.secret)]byte(words.Secret)
	for i := range words.Tokens {
		w := &words.Tokens[i]
		keep := t.opts.SuccessTTL + t.offlineTTL.load()
		if age, ok := ageOf(w.Said, keep); ok && len(w.Hash) == len(credentialKey{}) {
			answer := tokenAnswer{user: userOfReview(&w.User), owner: w.User.Username, expires: w.Expires}
			t.answers.restore(answer.owner, credentialKey(w.Hash), answer, age, keep)
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

// Words adds to words what is known of permissions, up to about size bytes, of which users, by
// their names, have shares: of each refusals come first, and then those that were given last.
func (a *Authorizer) Words(words *Words, size int) {
	all, forgotten := a.lastWords.list(a.decisions.generation(), a.offlineTTL.load())
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
	fit, rest := share(all, size, func(word *lastWord) (string, int) { return word.to.name, word.writtenSize() })
	for _, word := range fit {
		d := DecisionWord{
			Name: word.to.name, User: slices.Clone(word.key.user[:]), Attributes: word.attributes,
			Allowed: word.decision.Allowed, Reason: word.decision.Reason, Said: now.Add(-now.Sub(word.said)),
		}
		if word.key.large != (digest{}) {
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
	n := wordSize + writtenSize(l.to.name) + writtenSize(l.decision.Reason)
	for _, s := range l.attributes.strings() {
		n += writtenSize(*s)
	}
	return n
}

// Restore takes over what an earlier process knew of permissions: refusals for what is left
// of their time, permissions for that or until Invalidate. It is to be called before there
// are requests.
func (a *Authorizer) Restore(words *Words) {
	if a.offlineTTL.load() == 0 {
		return
	}
	a.lastWords.forget(words.Forgotten, a.offlineTTL.load())
	for i := range words.Decisions {
		w := &words.Decisions[i]
		age, ok := ageOf(w.Said, a.offlineTTL.load())
		if !ok || len(w.User) != len(digest{}) {
			continue
		}
		key := decisionKey{user: digest(w.User), a: w.Attributes}
		if len(w.Large) == len(digest{}) {
			key = decisionKey{user: key.user, large: digest(w.Large)}
		}
		said := time.Now().Add(-age)
		d := Decision{Allowed: w.Allowed, Reason: w.Reason, Generation: a.decisions.generation()}
		a.lastWords.put(w.Name, key, &w.Attributes, d, said, said.Add(a.offlineTTL.load()))
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
