package authn

import (
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// SavedTokens are what the upstream said last of tokens, in a form that can be
// kept over a restart. There is no token in them, but they tell who may do what.
type SavedTokens struct {
	// Secret keys the hashes of the tokens, Audiences are those that they were reviewed for.
	Secret    []byte       `json:"secret"`
	Audiences []string     `json:"audiences,omitempty"`
	Tokens    []SavedToken `json:"tokens,omitempty"`
}

// SavedToken says that the upstream accepted a token.
type SavedToken struct {
	Hash    []byte                    `json:"hash"`
	User    authenticationv1.UserInfo `json:"user"`
	Said    time.Time                 `json:"said"`
	Expires time.Time                 `json:"expires,omitzero"`
}

// Save adds to words what is known of tokens, up to about size bytes, of which users, by
// their names, have shares: of each those that were accepted last come first.
func (a *Authenticator) Save(words *SavedTokens, size int) {
	if a.tokens == nil {
		return
	}
	now := time.Now()
	words.Secret, words.Audiences = a.tokens.secret[:], a.opts.Audiences
	a.tokens.answers.Each(func(key CredentialKey, answer tokenAnswer, age time.Duration) {
		if u := answer.user; u != nil {
			words.Tokens = append(words.Tokens, SavedToken{Hash: slices.Clone(key[:]), User: u.review(), Said: now.Add(-age), Expires: answer.expires})
		}
	})
	slices.SortFunc(words.Tokens, func(a, b SavedToken) int { return b.Said.Compare(a.Said) })
	words.Tokens, _ = review.Fit(words.Tokens, size, func(t SavedToken) (string, int) { return t.User.Username, t.size() })
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

func (t *SavedToken) size() int {
	n := review.EntrySize + review.JSONSize(t.User.Username) + review.JSONSize(t.User.UID)
	for _, group := range t.User.Groups {
		n += review.JSONSize(group)
	}
	for key, values := range t.User.Extra {
		n += review.JSONSize(key)
		for _, v := range values {
			n += review.JSONSize(v)
		}
	}
	return n
}

// Restore takes over what an earlier process knew of tokens. They count for what is left of
// their time, while the upstream cannot be asked. It is to be called before there are
// requests.
func (a *Authenticator) Restore(words *SavedTokens) {
	t := a.tokens
	if t == nil || len(words.Secret) != len(t.secret) || !slices.Equal(words.Audiences, a.opts.Audiences) {
		return
	}
	t.secret = [len(t.secret)]byte(words.Secret)
	for i := range words.Tokens {
		w := &words.Tokens[i]
		keep := t.opts.SuccessTTL + t.offlineTTL.Load()
		if age, ok := review.Age(w.Said, keep); ok && len(w.Hash) == len(CredentialKey{}) {
			answer := tokenAnswer{user: userOfReview(&w.User), owner: w.User.Username, expires: w.Expires}
			t.answers.Restore(answer.owner, CredentialKey(w.Hash), answer, age, keep)
		}
	}
}

// Forget forgets what the upstream said of tokens.
func (a *Authenticator) Forget() {
	if a.tokens != nil {
		a.tokens.answers.DropAll()
	}
}
