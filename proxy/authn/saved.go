package authn

import (
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// SavedTokens are accepted tokens in a form that is saved for a restart. They contain no token, but
// they grant authentication.
type SavedTokens struct {
	// Secret keys the hashes of the tokens. Audiences are the audiences of the reviews.
	Secret    []byte       `json:"secret"`
	Audiences []string     `json:"audiences,omitempty"`
	Tokens    []SavedToken `json:"tokens,omitempty"`
}

// SavedToken is a token that the upstream accepted.
type SavedToken struct {
	Hash []byte                    `json:"hash"`
	User authenticationv1.UserInfo `json:"user"`
	// Decided is when the upstream accepted the token, Expires the expiry in the token.
	Decided time.Time `json:"said"`
	Expires time.Time `json:"expires,omitzero"`
}

// Save stores the accepted tokens in saved, up to about size bytes, which users share: the latest
// tokens of each user come first.
func (a *Authenticator) Save(saved *SavedTokens, size int) {
	t := a.tokens
	if t == nil {
		return
	}
	saved.Secret, saved.Audiences = t.secret[:], a.opts.Audiences
	clock, now := t.results.Now(), time.Now()
	var tokens []SavedToken
	for e := range t.results.All() {
		if u := e.Value.user; u != nil && clock < e.Added+int64(t.validFor()) {
			decided := now.Add(-time.Duration(clock - e.Added))
			tokens = append(tokens, SavedToken{Hash: slices.Clone(e.Key[:]), User: u.review(), Decided: decided, Expires: e.Value.expires})
		}
	}
	slices.SortFunc(tokens, func(a, b SavedToken) int { return b.Decided.Compare(a.Decided) })
	saved.Tokens, _ = review.Fit(tokens, size, func(t SavedToken) (string, int) { return t.User.Username, review.JSONSize(t) })
}

// Restore adds the tokens that an earlier process saved. They are valid for the rest of their
// OfflineTTL, while the upstream is unavailable. It must be called before the first request.
func (a *Authenticator) Restore(saved *SavedTokens) {
	t := a.tokens
	if t == nil || len(saved.Secret) != len(t.secret) || !slices.Equal(saved.Audiences, a.opts.Audiences) {
		return
	}
	t.secret = [len(t.secret)]byte(saved.Secret)
	valid := t.validFor()
	for i := range saved.Tokens {
		s := &saved.Tokens[i]
		if age, ok := review.Age(s.Decided, valid); ok && len(s.Hash) == len(CredentialKey{}) {
			t.results.Put(review.Entry[CredentialKey, tokenReview]{
				Key: CredentialKey(s.Hash), Owner: s.User.Username, Generation: t.results.Generation(),
				Value: tokenReview{user: userOfReview(&s.User), owner: s.User.Username, expires: s.Expires},
				Added: t.results.Now() - int64(age), Keep: max(valid, verifiedFor),
			})
		}
	}
}

// Forget drops the accepted tokens.
func (a *Authenticator) Forget() {
	if a.tokens != nil {
		a.tokens.results.DropAll()
	}
}

// review converts the user to the UserInfo of a TokenReview.
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
