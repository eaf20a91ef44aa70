package authn

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// tokenReview is the result of reviewing a token: a user, or the reason for rejecting it.
type tokenReview struct {
	user   *User // nil if the token is invalid
	reason string
	owner  string // the name of the user, or of the user of an earlier review
	// expires is the expiry in the token, zero if it has none.
	expires time.Time
	// offline is true for an older result that is used because the upstream is unavailable.
	offline bool
	// reviews is the share of a review that this caller caused.
	reviews float64
}

// tokens authenticates bearer tokens by TokenReview and caches the results under a keyed hash of
// the token, never the token. It is safe for concurrent use.
type tokens struct {
	opts    Options
	metrics map[tokenResult]prometheus.Counter

	secret [sha256.Size]byte // keys the hash; only Restore changes it
	// results holds the results of tokens that were accepted at some time. They are owned by the
	// users of the tokens, who may have any number of them. rejected holds the results of all other
	// tokens: their senders choose how many there are, so they must not evict anything else.
	results    *review.Cache[CredentialKey, tokenReview]
	rejected   *review.Cache[CredentialKey, tokenReview]
	unverified unverified
	flights    flight.Group[CredentialKey, tokenReview]
	reviews    *review.Reviews
}

func newTokens(opts Options, metrics map[tokenResult]prometheus.Counter) *tokens {
	t := &tokens{
		opts: opts, metrics: metrics,
		results:    review.NewCache[CredentialKey, tokenReview](opts.CacheSize),
		rejected:   review.NewCache[CredentialKey, tokenReview](opts.CacheSize),
		unverified: unverified{slots: make(chan struct{}, opts.UnverifiedReviews)},
		reviews:    review.New("tokenreviews", &opts.Settings),
	}
	t.unverified.limit.Store(int64(opts.UnverifiedTokens))
	_, _ = rand.Read(t.secret[:]) // never fails
	return t
}

func (t *tokens) key(token string) CredentialKey {
	var buffer [2048]byte // on the stack, for most tokens
	return sha256.Sum256(append(append(buffer[:0], t.secret[:]...), token...))
}

// validFor returns how long an accepted token is valid offline. Its result is cached for at least
// verifiedFor.
func (t *tokens) validFor() time.Duration { return t.opts.SuccessTTL + t.reviews.OfflineTTL() }

// cached returns how many results are cached.
func (t *tokens) cached() int { return t.results.Len() + t.rejected.Len() }

// lookup returns the result for a token whose key is key. The error is ErrUnauthenticated if the
// upstream rejects the token, and review.ErrUnavailable if it is unavailable and there is no older
// result.
func (t *tokens) lookup(ctx context.Context, key CredentialKey, token string) (tokenReview, error) {
	if result, ok := t.fresh(key); ok {
		t.metrics[tokenCached].Inc()
		return result.accepted()
	}
	if t.results.Find(key) != nil { // the upstream accepted the token lately
		return t.review(ctx, key, token, true)
	}
	if result, ok := t.reviewLocally(ctx, key, token); ok {
		return result, nil
	}
	if err := t.unverified.enter(); err != nil {
		t.metrics[tokenLimited].Inc()
		return tokenReview{}, err
	}
	defer t.unverified.leave()
	return t.review(ctx, key, token, false)
}

// fresh returns a result that makes a review unnecessary.
func (t *tokens) fresh(key CredentialKey) (tokenReview, bool) {
	if result, ok := t.results.Get(key); ok {
		return result, true
	}
	return t.rejected.Get(key)
}

// review reviews a token that has no fresh result. Simultaneous callers share a review, but never
// one that began before they called.
func (t *tokens) review(ctx context.Context, key CredentialKey, token string, verified bool) (tokenReview, error) {
	older, known := t.stale(key)
	if known && t.reviews.Unreachable() {
		t.metrics[tokenOffline].Inc()
		return older.accepted()
	}
	limited, cancel := t.reviews.WithTimeout(ctx, known)
	defer cancel()
	result, by, err := t.flights.Do(limited, key, func(ctx context.Context) (tokenReview, error) {
		if result, ok := t.fresh(key); ok { // from the round before this one
			return result, nil
		}
		if !verified {
			if err := t.unverified.begin(ctx); err != nil {
				t.metrics[tokenLimited].Inc()
				return tokenReview{}, err
			}
			defer t.unverified.end()
		}
		result, err := t.create(ctx, key, token)
		result.reviews = 1
		return result, err
	})
	switch {
	case err == nil:
		result.reviews *= by.Part()
		return result.accepted()
	case known && errors.Is(err, review.ErrUnavailable):
		now := t.results.Now()
		switch e := t.results.Find(key); {
		case e != nil && e.Fresh(now): // of a review that was shared, and has ended just now
			return e.Value.accepted()
		case e != nil: // use the older result for a while, but not beyond its time
			again := *e
			again.Value, again.TTL = older, min(time.Duration(now-e.Added)+review.StaleFor, t.validFor())
			t.results.Put(again)
		}
		t.metrics[tokenOffline].Inc()
		return older.accepted()
	}
	return tokenReview{}, err
}

// stale returns the last result of an accepted token that has not expired since.
func (t *tokens) stale(key CredentialKey) (result tokenReview, ok bool) {
	e := t.results.Find(key)
	if e == nil || t.results.Now() >= e.Added+int64(t.validFor()) {
		return result, false
	}
	result = e.Value
	result.offline = true
	return result, result.expires.IsZero() || time.Now().Before(result.expires)
}

// request returns the TokenReview of a token.
func (t *tokens) request(token string) *authenticationv1.TokenReview {
	return &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: t.opts.Audiences}}
}

// reviewLocally reviews a token by LocalTokenReviewer. ok is true, and the result cached, if it accepts the token.
func (t *tokens) reviewLocally(ctx context.Context, key CredentialKey, token string) (result tokenReview, ok bool) {
	if t.opts.LocalTokenReviewer == nil {
		return tokenReview{}, false
	}
	gen := t.results.Generation()
	response, err := t.opts.LocalTokenReviewer.Create(ctx, t.request(token), metav1.CreateOptions{})
	if err != nil || !response.Status.Authenticated {
		return tokenReview{}, false
	}
	return t.store(key, token, gen, response), true
}

// create creates a TokenReview and caches the result.
func (t *tokens) create(ctx context.Context, key CredentialKey, token string) (tokenReview, error) {
	gen := t.results.Generation()
	var undetermined error
	response, err := review.Create(ctx, t.reviews, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
		response, err := t.opts.TokenReviewer.Create(ctx, t.request(token), metav1.CreateOptions{})
		if errors.Is(err, ErrUndetermined) {
			undetermined, err = err, nil // not to be tried again
		}
		return response, err
	})
	if err = cmp.Or(err, undetermined); err != nil {
		t.metrics[tokenError].Inc()
		return tokenReview{}, err
	}
	return t.store(key, token, gen, response), nil
}

// store caches the result of a review that began in a generation of the cache.
func (t *tokens) store(key CredentialKey, token string, gen uint64, response *authenticationv1.TokenReview) tokenReview {
	before, now := t.results.Find(key), t.results.Now()
	entry := review.Entry[CredentialKey, tokenReview]{Key: key, Generation: gen, Added: now, TTL: t.opts.FailureTTL}
	if response.Status.Authenticated {
		t.metrics[tokenValid].Inc()
		name := response.Status.User.Username
		entry.Value = tokenReview{user: userOfReview(&response.Status.User), owner: name, expires: expiryOf(token)}
		entry.Owner, entry.TTL, entry.Keep = name, t.opts.SuccessTTL, max(t.validFor(), verifiedFor)
		t.results.Put(entry)
		if before == nil || before.Value.user == nil || before.Value.user.digest != entry.Value.user.digest {
			t.opts.OnChange()
		}
		return entry.Value
	}
	t.metrics[tokenInvalid].Inc()
	entry.Value.reason = response.Status.Error
	if before == nil {
		entry.Generation = t.rejected.Generation()
		t.rejected.Put(entry)
		return entry.Value
	}
	// The token was accepted before: the rejection replaces that result.
	entry.Owner, entry.Value.owner = before.Value.owner, before.Value.owner
	t.results.Put(entry)
	t.opts.OnChange()
	return entry.Value
}

// accepted returns the result of an accepted token, and an error for a rejected one.
func (r tokenReview) accepted() (tokenReview, error) {
	switch {
	case r.user != nil:
		return r, nil
	case r.reason == "":
		return r, fmt.Errorf("%w: invalid bearer token", ErrUnauthenticated)
	}
	return r, fmt.Errorf("%w: %s", ErrUnauthenticated, r.reason)
}

func userOfReview(info *authenticationv1.UserInfo) *User {
	u := user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if len(info.Extra) > 0 {
		u.Extra = make(map[string][]string, len(info.Extra))
		for k, v := range info.Extra {
			u.Extra[k] = v
		}
	}
	return authenticatedUser(u)
}

// expiryOf returns the expiry of a token that is a JSON Web Token with one, and the zero time for
// other tokens. The upstream has accepted the token, so its claims can be trusted.
func expiryOf(token string) time.Time {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, ok := strings.Cut(rest, ".")
	if !ok {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expiry <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expiry), 0)
}
