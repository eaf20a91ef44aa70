package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// TokenReviewer creates TokenReviews; AuthenticationV1Interface.TokenReviews()
// of client-go is one.
type TokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// credentialKey stands for a credential without revealing it: a keyed SHA-256 of
// a token, or the fingerprint of a certificate. The zero value is no credential.
type credentialKey [sha256.Size]byte

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
	opts     AuthenticatorOptions
	metrics  *authenticationMetrics

	secret  [sha256.Size]byte // keys the hash; changed by Restore alone
	buffers sync.Pool         // of *[]byte, to hash without allocating
	// answers are those of tokens that were good at some time, and seen those tokens for
	// longer, both owned by the tokens' users, who may be given any number of them. refused are
	// the answers of all others, whose number is their senders' choice and may push out nothing
	// else.
	answers   *ttlCache[credentialKey, tokenAnswer]
	seen      *ttlCache[credentialKey, struct{}]
	refused   *ttlCache[credentialKey, tokenAnswer]
	newcomers *newcomers
	flights   flight.Group[credentialKey, tokenAnswer]
	outage    outage
	setup     complaint

	offlineTTL atomicDuration
}

// atomicDuration is a time.Duration that may change. It is safe for concurrent use.
type atomicDuration struct{ ns atomic.Int64 }

func (d *atomicDuration) load() time.Duration   { return time.Duration(d.ns.Load()) }
func (d *atomicDuration) store(v time.Duration) { d.ns.Store(int64(v)) }

func newTokens(opts AuthenticatorOptions, metrics *authenticationMetrics) *tokens {
	t := &tokens{
		reviewer: opts.TokenReviewer,
		opts:     opts,
		metrics:  metrics,
		answers:  newTTLCache[credentialKey, tokenAnswer](opts.CacheSize),
		seen:     newTTLCache[credentialKey, struct{}](opts.CacheSize),
		refused:  newTTLCache[credentialKey, tokenAnswer](opts.CacheSize),

		newcomers: newNewcomers(opts.Newcomers),
		outage:    outage{reachable: opts.Reachable},
	}
	t.offlineTTL.store(opts.OfflineTTL)
	t.buffers.New = func() any { return new([]byte) }
	_, _ = rand.Read(t.secret[:]) // never fails
	return t
}

func (t *tokens) key(token string) credentialKey {
	b := t.buffers.Get().(*[]byte)
	*b = append(append((*b)[:0], t.secret[:]...), token...)
	key := credentialKey(sha256.Sum256(*b))
	clear(*b)
	t.buffers.Put(b)
	return key
}

// lookup returns an answer with the user of a token, of which key is the key.
// The error is ErrUnauthenticated for a token that the upstream does not accept
// and ErrUnavailable when it could not be asked and the token is not known.
func (t *tokens) lookup(ctx context.Context, key credentialKey, token string) (tokenAnswer, error) {
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
func (t *tokens) wasGood(key credentialKey) bool {
	if _, ok := t.seen.get(key); ok {
		return true
	}
	_, ok := t.answers.getStale(key)
	return ok
}

// remembered returns the answer to a question that need not be asked now.
func (t *tokens) remembered(key credentialKey) (tokenAnswer, bool) {
	if answer, ok := t.answers.get(key); ok {
		return answer, true
	}
	return t.refused.get(key)
}

// ask finds out what is not remembered. Simultaneous callers share a review, but
// never one that began before they asked.
func (t *tokens) ask(ctx context.Context, key credentialKey, token string, newcomer bool) (tokenAnswer, error) {
	last, known := t.lastWord(key)
	if known && !t.outage.ask(t.answers.now()) {
		t.metrics.reviewOffline.Inc()
		return last.result()
	}
	patient, cancel := reviewTimeout(ctx, known, t.opts.ReviewTimeout)
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
		t.outage.end()
		answer.asked *= by.Part()
		return answer.result()
	case known && errors.Is(err, ErrUnavailable):
		if !t.outage.begin(t.answers.now()) {
			t.answers.renew(key, last, outagePause)
		}
		t.metrics.reviewOffline.Inc()
		return last.result()
	}
	return tokenAnswer{}, err
}

// lastWord is the upstream's last answer about a token that it accepted and that has not
// expired since.
func (t *tokens) lastWord(key credentialKey) (answer tokenAnswer, ok bool) {
	answer, ok = t.answers.getStale(key)
	answer.offline = true
	return answer, ok && (answer.expires.IsZero() || time.Now().Before(answer.expires))
}

// review asks the upstream and remembers the answer. It asks again once when the
// upstream could not be asked: a review changes nothing, and a connection that
// the upstream just closed says nothing of the upstream.
func (t *tokens) review(ctx context.Context, key credentialKey, token string) (tokenAnswer, error) {
	gen := t.answers.generation()
	result, err := createReview(ctx, t.opts.ReviewTimeout, func(ctx context.Context) (*authenticationv1.TokenReview, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: t.opts.Audiences}}
		return t.reviewer.Create(ctx, review, metav1.CreateOptions{})
	})
	if err != nil {
		t.metrics.reviewError.Inc()
		complainOfSetup(&t.setup, t.opts.Log, "tokenreviews", err)
		return tokenAnswer{}, reviewError("reviewing a token", err)
	}
	if !result.Status.Authenticated {
		t.metrics.reviewInvalid.Inc()
		answer := tokenAnswer{reason: result.Status.Error}
		t.refuse(key, answer, gen)
		return answer, nil
	}
	t.metrics.reviewValid.Inc()
	answer := tokenAnswer{user: userOfReview(&result.Status.User), owner: result.Status.User.Username, expires: expiryOf(token)}
	t.seen.putFor(answer.owner, key, struct{}{}, t.seen.generation(), seenFor, 0)
	last, known := t.answers.getStale(key)
	t.answers.putFor(answer.owner, key, answer, gen, t.opts.SuccessTTL, t.opts.SuccessTTL+t.offlineTTL.load())
	if !known || last.user == nil || last.user.digest != answer.user.digest {
		t.opts.Told()
	}
	return answer, nil
}

// refuse remembers a refusal. That of a token which was good takes the place of what
// is known of it.
func (t *tokens) refuse(key credentialKey, answer tokenAnswer, gen uint64) {
	last, known := t.answers.getStale(key)
	if !known {
		t.refused.put(key, answer, gen, t.opts.FailureTTL, 0)
		return
	}
	answer.owner = last.owner
	t.answers.putFor(answer.owner, key, answer, gen, t.opts.FailureTTL, 0)
	t.opts.Told()
}

// remember is how many answers are remembered.
func (t *tokens) remember() int { return t.answers.len() + t.refused.len() }

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

// retryPause is the time between the two tries of a review.
const retryPause = 100 * time.Millisecond

// createReview calls create, and once more when the upstream could not be asked,
// within timeout.
func createReview[R any](ctx context.Context, timeout time.Duration, create func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := create(ctx)
	if err == nil || ctx.Err() != nil || !errors.Is(reviewError("", err), ErrUnavailable) {
		return result, err
	}
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return create(ctx)
	case <-ctx.Done():
		return result, err
	}
}

// bearerToken returns the token of an Authorization header, "" without one
// (k8s.io/apiserver/pkg/authentication/request/bearertoken).
func bearerToken(authorization string) string {
	parts := strings.SplitN(strings.TrimSpace(authorization), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}

const (
	webSocketProtocols    = "Sec-WebSocket-Protocol"
	webSocketTokenPrefix  = "base64url.bearer.authorization.k8s.io."
	webSocketTokenProblem = "bearer token in a WebSocket subprotocol"
)

func isWebSocket(r *api.Request) bool { return strings.EqualFold(r.Upgrade, "websocket") }

// webSocketToken returns the token that a WebSocket handshake carries among its
// subprotocols, as browsers send it, "" without one
// (k8s.io/apiserver/pkg/authentication/request/websocket).
func webSocketToken(r *api.Request) (string, error) {
	if !isWebSocket(r) {
		return "", nil
	}
	token, tokens, others := "", 0, 0
	for _, line := range r.Header.Values(webSocketProtocols) {
		for protocol := range strings.SplitSeq(line, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), webSocketTokenPrefix)
			if !ok {
				others++
				continue
			}
			if tokens++; tokens > 1 {
				return "", fmt.Errorf("%w: more than one %s", ErrUnauthenticated, webSocketTokenProblem)
			}
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(decoded) {
				return "", fmt.Errorf("%w: malformed %s", ErrUnauthenticated, webSocketTokenProblem)
			}
			token = string(decoded)
		}
	}
	// One that is left after the token is taken out is echoed to the client.
	if token != "" && others == 0 {
		return "", fmt.Errorf("%w: %s without another subprotocol", ErrUnauthenticated, webSocketTokenProblem)
	}
	return token, nil
}

// dropTokens takes the tokens out of a WebSocket's subprotocols, whose rest is one line
// then, as it is to kube-apiserver.
func dropTokens(h *api.Header) {
	lines := h.Values(webSocketProtocols)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, webSocketTokenPrefix) }) {
		return
	}
	var kept []string
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, webSocketTokenPrefix) {
				kept = append(kept, protocol)
			}
		}
	}
	h.Del(webSocketProtocols)
	if rest := strings.Join(kept, ","); rest != "" {
		h.Add(webSocketProtocols, rest)
	}
}
