package responses

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Cache remember what the upstream answered those who asked it something small: what they
// may do, who they are, what it serves. That it answered somebody is a decision, too, so an
// answer counts as long as one, for AllowedTTL or DeniedTTL of the authz.Authorizer, and until an RBAC
// object changes. Who asks much, by their name, pushes out answers of their own first. It is
// safe for concurrent use.
type Cache[V any] struct {
	authorizer *authz.Authorizer
	answers    *review.Cache[answerKey, Response[V]]
	flights    flight.Group[answerKey, Response[V]]
}

// answerKey is who asked, as whom, and what: nobody gets the answer that was given to
// somebody else.
type answerKey struct {
	sender, subject authn.Digest
	question        [sha256.Size]byte
}

// Response is what the upstream answered.
type Response[V any] struct {
	Value V
	// Keep tells that the answer counts for some time, Allowed for how long: as a
	// permission, or as a refusal.
	Keep, Allowed bool
	// For is the longest time for which it counts, 0 for that of a decision.
	For time.Duration

	generation uint64
}

// Origin says where one of the Cache comes from.
type Origin uint8

const (
	// FromUpstream is an answer to this request.
	FromUpstream Origin = iota
	// Shared is an answer to an equal request that began after this one came.
	Shared
	// Cached is one that is remembered.
	Cached
)

// New returns a memory of at most size answers for whom authorizer decides.
func New[V any](authorizer *authz.Authorizer, size int) *Cache[V] {
	return &Cache[V]{authorizer: authorizer, answers: review.NewCache[answerKey, Response[V]](size)}
}

// Covers reports whether it is known here who asks and as whom, by what the upstream says of
// them now. Who is not covered is to be forwarded.
func (r *Cache[V]) Covers(s *authn.Subject) bool { return !s.UpstreamDecides && !s.Offline }

// Ask returns the answer to a question, named by its digest, of s: one that is remembered, or
// that of ask, which simultaneous callers share; part says what of it is this one's. An error
// is ask's, ctx's, or review.ErrNoReview.
func (r *Cache[V]) Ask(ctx context.Context, s *authn.Subject, question [sha256.Size]byte, ask func(context.Context) (Response[V], error)) (value V, told Origin, part float64, err error) {
	key := answerKey{sender: s.Identity.User.Digest(), subject: s.User.Digest(), question: question}
	if known, ok := r.remembered(key); ok {
		return known.Value, Cached, 0, nil
	}
	if review.Disabled(ctx) {
		return value, told, 0, review.ErrNoReview
	}
	answer, by, err := r.flights.Do(ctx, key, func(ctx context.Context) (Response[V], error) {
		return r.ask(ctx, s.Identity.User.GetName(), key, ask)
	})
	if told = FromUpstream; !by.First {
		told = Shared
	}
	return answer.Value, told, by.Part(), err
}

// remembered is an answer that no change of an RBAC object has made doubtful.
func (r *Cache[V]) remembered(key answerKey) (Response[V], bool) {
	known, ok := r.answers.Get(key)
	return known, ok && known.generation == r.authorizer.Generation()
}

func (r *Cache[V]) ask(ctx context.Context, name string, key answerKey, ask func(context.Context) (Response[V], error)) (Response[V], error) {
	if known, ok := r.remembered(key); ok { // of the round before this one
		return known, nil
	}
	a := r.authorizer
	generation, begun := a.Generation(), a.Clock()
	answer, err := ask(ctx)
	if err != nil || !answer.Keep {
		return answer, err
	}
	answer.generation = generation
	ttl, _ := a.TTL(answer.Allowed, begun)
	if answer.For > 0 {
		ttl = min(ttl, answer.For)
	}
	r.answers.PutFor(name, key, answer, 0, ttl, 0)
	return answer, nil
}
