package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// TokenReviewer creates TokenReviews; AuthenticationV1Interface.TokenReviews()
// of client-go is one.
type TokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// CredentialKey stands for a credential without revealing it: a keyed SHA-256 of
// a token, or the fingerprint of a certificate. The zero value is no credential.
type CredentialKey [sha256.Size]byte

// tokenAnswer is what the upstream said of a token: a user, or why not.
type tokenAnswer struct {
	user   *User // nil when the token is not valid
	reason string
	owner  string // the name of the user, or of who it was before
	// expires is when the token itself does, as far as it tells.
	expires time.Time
	// offline tells that the upstream could not be asked, and this is what it said last.
	offline bool
	// asked is what part of a review was made for this caller.
	asked float64
}

// tokens authenticates bearer tokens by TokenReview and remembers the answers
// under a keyed hash of the token, never the token. It is safe for concurrent
// use.
type tokens struct {
	reviewer TokenReviewer
	opts     Options
	metrics  *authenticationMetrics

	secret  [sha256.Size]byte // keys the hash; changed by Restore alone
	buffers sync.Pool         // of *[]byte, to hash without allocating
	// answers are those of tokens that were good at some time, and seen those tokens for
	// longer, both owned by the tokens' users, who may be given any number of them. refused are
	// the answers of all others, whose number is their senders' choice and may push out nothing
	// else.
	answers   *review.Cache[CredentialKey, tokenAnswer]
	seen      *review.Cache[CredentialKey, struct{}]
	refused   *review.Cache[CredentialKey, tokenAnswer]
	newcomers *newcomers
	flights   flight.Group[CredentialKey, tokenAnswer]
	outage    review.Outage
	setup     review.LogLimit

	offlineTTL review.Duration
}

func newTokens(opts Options, metrics *authenticationMetrics) *tokens {
	t := &tokens{
		reviewer: opts.TokenReviewer,
		opts:     opts,
		metrics:  metrics,
		answers:  review.NewCache[CredentialKey, tokenAnswer](opts.CacheSize),
		seen:     review.NewCache[CredentialKey, struct{}](opts.CacheSize),
		refused:  review.NewCache[CredentialKey, tokenAnswer](opts.CacheSize),

		newcomers: newNewcomers(opts.Newcomers),
		outage:    review.Outage{Reachable: opts.Reachable},
	}
	t.offlineTTL.Store(opts.OfflineTTL)
	t.buffers.New = func() any { return new([]byte) }
	_, _ = rand.Read(t.secret[:]) // never fails
	return t
}

func (t *tokens) key(token string) CredentialKey {
	b := t.buffers.Get().(*[]byte)
	*b = append(append((*b)[:0], t.secret[:]...), token...)
	key := CredentialKey(sha256.Sum256(*b))
	clear(*b)
	t.buffers.Put(b)
	return key
}

// lookup returns an answer with the user of a token, of which key is the key.
// The error is ErrUnauthenticated for a token that the upstream does not accept
// and review.ErrUnavailable when it could not be asked and the token is not known.
func (t *tokens) lookup(ctx context.Context, key CredentialKey, token string) (tokenAnswer, error) {
	if answer, ok := t.remembered(key); ok {
		t.metrics.reviewCached.Inc()
		return answer.result()
	}
	if t.wasGood(key) {
		return t.ask(ctx, key, token, false)
	}
	if err := t.newcomers.enter(); err != nil {
		t.metrics.reviewLimited.Inc()
		return tokenAnswer{}, err
	}
	defer t.newcomers.leave()
	return t.ask(ctx, key, token, true)
}

// wasGood reports whether the upstream accepted the token not long ago.
func (t *tokens) wasGood(key CredentialKey) bool {
	if _, ok := t.seen.Get(key); ok {
		return true
	}
	_, ok := t.answers.GetStale(key)
	return ok
}

// remembered returns the answer to a question that need not be asked now.
func (t *tokens) remembered(key CredentialKey) (tokenAnswer, bool) {
	if answer, ok := t.answers.Get(key); ok {
		return answer, true
	}
	return t.refused.Get(key)
}

// ask finds out what is not remembered. Simultaneous callers share a review, but
// never one that began before they asked.
func (t *tokens) ask(ctx context.Context, key CredentialKey, token string, newcomer bool) (tokenAnswer, error) {
	last, known := t.lastWord(key)
	if known && !t.outage.Ask(t.answers.Now()) {
		t.metrics.reviewOffline.Inc()
		return last.result()
	}
	patient, cancel := review.WithTimeout(ctx, known, t.opts.ReviewTimeout)
	defer cancel()
	answer, by, err := t.flights.Do(patient, key, func(ctx context.Context) (tokenAnswer, error) {
		if answer, ok := t.remembered(key); ok { // of the round before this one
			return answer, nil
		}
		if newcomer {
			if err := t.newcomers.begin(ctx); err != nil {
				t.metrics.reviewLimited.Inc()
				return tokenAnswer{}, err
			}
			defer t.newcomers.end()
		}
		answer, err := t.review(ctx, key, token)
		answer.asked = 1
		return answer, err
	})
	switch {
	case err == nil:
		t.outage.End()
		answer.asked *= by.Part()
		return answer.result()
	case known && errors.Is(err, review.ErrUnavailable):
		if !t.outage.Begin(t.answers.Now()) {
			t.answers.Renew(key, last, review.StaleFor)
		}
		t.metrics.reviewOffline.Inc()
		return last.result()
	}
	return tokenAnswer{}, err
}

// lastWord is the upstream's last answer about a token that it accepted and that has not
// expired since.
func (t *tokens) lastWord(key CredentialKey) (answer tokenAnswer, ok bool) {
	answer, ok = t.answers.GetStale(key)
	answer.offline = true
	return answer, ok && (answer.expires.IsZero() || time.Now().Before(answer.expires))
}

// review asks the upstream and remembers the answer. It asks again once when the
// upstream could not be asked: a review changes nothing, and a connection that
// the upstream just closed says nothing of the upstream.
func (t *tokens) review(ctx context.Context, key CredentialKey, token string) (tokenAnswer, error) {
	gen := t.answers.Generation()
	result, err := review.Create(ctx, t.opts.ReviewTimeout, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: t.opts.Audiences}}
		return t.reviewer.Create(ctx, review, metav1.CreateOptions{})
	})
	if err != nil {
		t.metrics.reviewError.Inc()
		review.LogRejection(&t.setup, t.opts.Log, "tokenreviews", err)
		return tokenAnswer{}, review.Error("reviewing a token", err)
	}
	if !result.Status.Authenticated {
		t.metrics.reviewInvalid.Inc()
		answer := tokenAnswer{reason: result.Status.Error}
		t.refuse(key, answer, gen)
		return answer, nil
	}
	t.metrics.reviewValid.Inc()
	answer := tokenAnswer{user: userOfReview(&result.Status.User), owner: result.Status.User.Username, expires: expiryOf(token)}
	t.seen.PutFor(answer.owner, key, struct{}{}, t.seen.Generation(), seenFor, 0)
	last, known := t.answers.GetStale(key)
	t.answers.PutFor(answer.owner, key, answer, gen, t.opts.SuccessTTL, t.opts.SuccessTTL+t.offlineTTL.Load())
	if !known || last.user == nil || last.user.digest != answer.user.digest {
		t.opts.Told()
	}
	return answer, nil
}

// refuse remembers a refusal. That of a token which was good takes the place of what
// is known of it.
func (t *tokens) refuse(key CredentialKey, answer tokenAnswer, gen uint64) {
	last, known := t.answers.GetStale(key)
	if !known {
		t.refused.Put(key, answer, gen, t.opts.FailureTTL, 0)
		return
	}
	answer.owner = last.owner
	t.answers.PutFor(answer.owner, key, answer, gen, t.opts.FailureTTL, 0)
	t.opts.Told()
}

// remember is how many answers are remembered.
func (t *tokens) remember() int { return t.answers.Len() + t.refused.Len() }

func (a tokenAnswer) result() (tokenAnswer, error) {
	if a.user != nil {
		return a, nil
	}
	if a.reason == "" {
		return a, fmt.Errorf("%w: invalid bearer token", ErrUnauthenticated)
	}
	return a, fmt.Errorf("%w: %s", ErrUnauthenticated, a.reason)
}

func userOfReview(info *authenticationv1.UserInfo) *User {
	u := user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if len(info.Extra) > 0 {
		u.Extra = make(map[string][]string, len(info.Extra))
		for k, v := range info.Extra {
			u.Extra[k] = v
		}
	}
	u = withAuthenticated(u)
	return NewUser(&u)
}

// expiryOf is when a token expires that is a JSON Web Token and says so, the zero time for
// others. It is believed of tokens that the upstream has accepted.
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
