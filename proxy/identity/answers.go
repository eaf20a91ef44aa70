package identity

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/kubeweir/kubeweir/internal/flight"
)

// Answers remember what the upstream answered those who asked it something small: what they
// may do, who they are, what it serves. That it answered somebody is a decision, too, so an
// answer counts as long as one, for AllowedTTL or DeniedTTL of the Authorizer, and until an RBAC
// object changes. Who asks much, by their name, pushes out answers of their own first. It is
// safe for concurrent use.
type Answers[V any] struct {
	authorizer *Authorizer
	answers    *ttlCache[answerKey, Answer[V]]
	flights    flight.Group[answerKey, Answer[V]]
}

// answerKey is who asked, as whom, and what: nobody gets the answer that was given to
// somebody else.
type answerKey struct {
	sender, subject digest
	question        [sha256.Size]byte
}

// Answer is what the upstream answered.
type Answer[V any] struct {
	Value V
	// Keep tells that the answer counts for some time, Allowed for how long: as a
	// permission, or as a refusal.
	Keep, Allowed bool
	// For is the longest time for which it counts, 0 for that of a decision.
	For time.Duration

	generation uint64
}

// Told says where one of the Answers comes from.
type Told uint8

const (
	// ToldNow is an answer to this request.
	ToldNow Told = iota
	// ToldOthers is an answer to an equal request that began after this one came.
	ToldOthers
	// ToldBefore is one that is remembered.
	ToldBefore
)

// NewAnswers returns a memory of at most size answers for whom authorizer decides.
func NewAnswers[V any](authorizer *Authorizer, size int) *Answers[V] {
	return &Answers[V]{authorizer: authorizer, answers: newTTLCache[answerKey, Answer[V]](size)}
}

// Covers reports whether it is known here who asks and as whom, by what the upstream says of
// them now. Who is not covered is to be forwarded.
func (r *Answers[V]) Covers(s *Subject) bool { return !s.UpstreamDecides && !s.Offline }

// Ask returns the answer to a question, named by its digest, of s: one that is remembered, or
// that of ask, which simultaneous callers share; part says what of it is this one's. An error
// is ask's, ctx's, or ErrNotAsked.
func (r *Answers[V]) Ask(ctx context.Context, s *Subject, question [sha256.Size]byte, ask func(context.Context) (Answer[V], error)) (value V, told Told, part float64, err error) {
	key := answerKey{sender: s.Identity.User.digest, subject: s.User.digest, question: question}
	if known, ok := r.remembered(key); ok {
		return known.Value, ToldBefore, 0, nil
	}
	if mayNotAsk(ctx) {
		return value, told, 0, ErrNotAsked
	}
	answer, by, err := r.flights.Do(ctx, key, func(ctx context.Context) (Answer[V], error) {
		return r.ask(ctx, s.Identity.User.GetName(), key, ask)
	})
	if told = ToldNow; !by.First {
		told = ToldOthers
	}
	return answer.Value, told, by.Part(), err
}

// remembered is an answer that no change of an RBAC object has made doubtful.
func (r *Answers[V]) remembered(key answerKey) (Answer[V], bool) {
	known, ok := r.answers.get(key)
	return known, ok && known.generation == r.authorizer.Generation()
}

func (r *Answers[V]) ask(ctx context.Context, name string, key answerKey, ask func(context.Context) (Answer[V], error)) (Answer[V], error) {
	if known, ok := r.remembered(key); ok { // of the round before this one
		return known, nil
	}
	a := r.authorizer
	generation, begun := a.Generation(), a.decisions.now()
	answer, err := ask(ctx)
	if err != nil || !answer.Keep {
		return answer, err
	}
	answer.generation = generation
	ttl, _ := a.countsFor(answer.Allowed, begun)
	if answer.For > 0 {
		ttl = min(ttl, answer.For)
	}
	r.answers.putFor(name, key, answer, 0, ttl, 0)
	return answer, nil
}

// countsFor is for how long a decision counts that was asked for at begun, on the decisions'
// clock. settled is false if the upstream may have decided by what was true before a change of
// an RBAC object.
func (a *Authorizer) countsFor(allowed bool, begun int64) (ttl time.Duration, settled bool) {
	ttl = a.opts.DeniedTTL
	if allowed {
		ttl = a.opts.AllowedTTL
	}
	if at := a.invalidated.Load() + int64(settle); begun < at {
		return min(ttl, time.Duration(at-a.decisions.now())), false
	}
	return ttl, true
}
