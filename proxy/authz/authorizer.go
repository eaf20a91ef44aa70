package authz

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// AccessReviewer creates SubjectAccessReviews;
// AuthorizationV1Interface.SubjectAccessReviews() of client-go is one.
type AccessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Decider decides what an upstream in this process would decide, by what is true
// at the moment. It is safe for concurrent use.
type Decider interface {
	// Decide tells whether u may do what a says, and the reason if there is one. An
	// error allows nothing.
	Decide(ctx context.Context, u user.Info, a Attributes) (allowed bool, reason string, err error)
}

// Rules are what the upstream decides by, as far as that is held here. They are safe for
// concurrent use.
type Rules interface {
	// Allow tells whether the rules, held whole and not too old, allow u what a says. It
	// is false when that is not known, and always while the upstream answers.
	Allow(u user.Info, a Attributes) bool
}

// Options say how decisions are made and remembered. Zero values stand
// for the defaults.
type Options struct {
	// AccessReviewer decides. Required without a Decider.
	AccessReviewer AccessReviewer
	// Decider, if set, is asked every time instead: nothing is remembered.
	Decider Decider
	// TrustedByUpstream tells that the upstream takes the gateway's word for who a
	// client is, so that every client can be forwarded as itself; see Impersonate.
	TrustedByUpstream bool
	// AllowedTTL is how long a permission is remembered (default 10 s), DeniedTTL
	// how long a refusal (default 5 s).
	AllowedTTL, DeniedTTL time.Duration
	// OfflineTTL is for how long what was decided last counts while the upstream cannot
	// be asked, or takes more than 2 s (Decision.Offline). Default: not at all. SetOfflineTTL
	// changes it.
	OfflineTTL time.Duration
	// Rules, if set, tell what the upstream did not say within OfflineTTL, or what an
	// RBAC object has changed since.
	Rules Rules
	// Told is called when there is something that Save did not have. It must not block.
	Told func()
	// Reachable tells whether the upstream can be reached, as far as is known; nil if
	// nobody knows. Once it can again, it is asked at once.
	Reachable func() bool
	// CacheSize bounds the remembered decisions, and as many more for OfflineTTL
	// (default 16384), of both of which users, by their names, have shares.
	CacheSize int
	// ReviewTimeout is how long a request waits for a decision (default 10 s).
	ReviewTimeout time.Duration
	// Log is told when the upstream refuses to decide. Default: discarded.
	Log *slog.Logger
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	review.SetDefault(&o.AllowedTTL, defaults.AllowedTTL)
	review.SetDefault(&o.DeniedTTL, defaults.DeniedTTL)
	review.SetDefault(&o.CacheSize, defaults.DecisionCacheSize)
	review.SetDefault(&o.ReviewTimeout, defaults.ReviewTimeout)
	review.SetDefault(&o.Log, slog.New(slog.DiscardHandler))
	if o.Told == nil {
		o.Told = func() {}
	}
}

// Settle is how long after a change the upstream may still decide by the old
// state: its authorizer follows RBAC objects by watches of its own, and another
// replica may lag behind the one that told of the change. Reviews begun in that
// time are not remembered beyond it.
const Settle = time.Second

// maxKeyBytes is up to what size the attributes, which the client chooses, are
// themselves the key under which a decision is remembered. Of larger ones it is a
// digest, so that what is remembered is bounded in bytes, too.
const maxKeyBytes = 2048

// Decision is the answer to "may this user do that".
type Decision struct {
	// Allowed is false for everything that the upstream does not allow.
	Allowed bool
	// Reason is the upstream authorizer's, often "".
	Reason string
	// Generation counts the invalidations that the decision knows of; see
	// revocation.Watches.Register.
	Generation uint64
	// Offline tells that the upstream could not be asked, and the decision is its last
	// one, or what its rules say.
	Offline bool
	// Asked is what part of a review was made for this caller: 1 if nobody shared it, 0 if
	// the decision was remembered.
	Asked float64
}

// Key stands for a user and attributes: the attributes themselves, or the
// digest of large ones.
type Key struct {
	user  authn.Digest
	a     Attributes
	large authn.Digest
}

// KeyOf returns the key of a user and attributes.
func KeyOf(u *authn.User, a *Attributes) Key {
	if a.Size() > maxKeyBytes {
		return Key{user: u.Digest(), large: a.digest()}
	}
	return Key{user: u.Digest(), a: *a}
}

// Authorizer decides by SubjectAccessReview and remembers the decisions. It fails
// closed: an error allows nothing. It is safe for concurrent use.
type Authorizer struct {
	opts       Options
	metrics    *authorizationMetrics
	decisions  *review.Cache[Key, Decision]
	lastWords  *lastWords // outlive Invalidate; empty without OfflineTTL
	offlineTTL review.Duration
	flights    flight.Group[Key, Decision]
	turns      review.FairQueue[authn.Digest]
	outage     review.Outage
	setup      review.LogLimit

	// invalidated is when Invalidate was last called, on the decisions' clock;
	// far in the past before the first time.
	invalidated atomic.Int64
	changed     chan struct{} // for revocation.Watches; holds one signal
}

// New returns an Authorizer. It owns no goroutine.
func New(opts Options) *Authorizer {
	opts.setDefaults()
	a := &Authorizer{
		opts:      opts,
		decisions: review.NewCache[Key, Decision](opts.CacheSize),
		lastWords: newLastWords(opts.CacheSize),
		changed:   make(chan struct{}, 1),
		outage:    review.Outage{Reachable: opts.Reachable},
	}
	a.offlineTTL.Store(opts.OfflineTTL)
	a.invalidated.Store(-int64(Settle))
	a.metrics = newAuthorizationMetrics(opts.Registerer, a.decisions.Len, a.lastWords.len, opts.CacheSize)
	return a
}

// Authorize asks whether u may do what attributes say, as the upstream would be
// asked. The gateway's own identity may do everything here: the upstream decided
// when the gateway read what is in its cache. A *authn.User is looked up without
// hashing it again.
func (a *Authorizer) Authorize(ctx context.Context, u user.Info, attributes Attributes) (Decision, error) {
	who := authn.NewUser(u)
	if who.IsGateway() {
		return Decision{Allowed: true, Generation: a.decisions.Generation()}, nil
	}
	if who.UpstreamDecides() {
		return Decision{}, ErrUpstreamDecides
	}
	if a.opts.Decider != nil {
		return a.decide(ctx, who, attributes)
	}
	key := KeyOf(who, &attributes)
	if d, ok := a.decisions.Get(key); ok {
		if d.Allowed {
			a.metrics.allowedCached.Inc()
		} else {
			a.metrics.deniedCached.Inc()
		}
		return d, nil
	}
	return a.ask(ctx, who, attributes)
}

// decide asks the Decider.
func (a *Authorizer) decide(ctx context.Context, u *authn.User, attributes Attributes) (Decision, error) {
	d := Decision{Generation: a.decisions.Generation()}
	var err error
	if d.Allowed, d.Reason, err = a.opts.Decider.Decide(ctx, u, attributes); err != nil {
		a.metrics.failed.Inc()
		return Decision{}, review.Error("reviewing access", err)
	}
	a.metrics.count(d.Allowed)
	return d, nil
}

// ask decides what is not remembered. Simultaneous callers share a review, but
// never one that began before they asked.
func (a *Authorizer) ask(ctx context.Context, u *authn.User, attributes Attributes) (Decision, error) {
	attributes = attributes.Clone()
	key := KeyOf(u, &attributes)
	_, known := a.lastWord(key)
	if !a.outage.Ask(a.decisions.Now()) {
		if d, ok := a.offline(u, attributes, key); ok {
			return d, nil
		}
	}
	if review.Disabled(ctx) {
		return Decision{}, review.ErrNoReview
	}
	leave, err := a.turns.Take(ctx, u.Digest())
	if err != nil {
		return Decision{}, err
	}
	defer leave()
	patient, cancel := review.WithTimeout(ctx, known, a.opts.ReviewTimeout)
	defer cancel()
	d, by, err := a.flights.Do(patient, key, func(ctx context.Context) (Decision, error) {
		if d, ok := a.decisions.Get(key); ok { // of the round before this one
			return d, nil
		}
		d, err := a.review(ctx, u, &attributes, key)
		d.Asked = 1
		return d, err
	})
	switch {
	case err == nil:
		a.outage.End()
		d.Asked *= by.Part()
		return d, nil
	case errors.Is(err, review.ErrUnavailable):
		if d, ok := a.offline(u, attributes, key); ok {
			if !a.outage.Begin(a.decisions.Now()) {
				a.decisions.PutFor(u.GetName(), key, d, d.Generation, review.StaleFor, 0)
			}
			return d, nil
		}
	}
	return Decision{}, err
}

// lastWord is what the upstream said last, where that still tells: a permission does
// until an RBAC object changes.
func (a *Authorizer) lastWord(key Key) (d Decision, ok bool) {
	d, ok = a.lastWords.get(key)
	return d, ok && (!d.Allowed || d.Generation == a.decisions.Generation())
}

// offline decides what the upstream cannot be asked: by what it said last, so that
// nobody may do what it refused, and else by its rules.
func (a *Authorizer) offline(u *authn.User, attributes Attributes, key Key) (d Decision, ok bool) {
	if a.offlineTTL.Load() == 0 {
		return d, false
	}
	gen := a.decisions.Generation()
	d, ok = a.lastWord(key)
	if !ok && a.rulesAllow(u, attributes) {
		d, ok = Decision{Allowed: true}, true
	}
	if !ok {
		return Decision{}, false
	}
	d.Generation, d.Offline = gen, true
	if d.Allowed {
		a.metrics.allowedOffline.Inc()
	} else {
		a.metrics.deniedOffline.Inc()
	}
	return d, true
}

// rulesAllow tells whether the rules allow what the upstream did not say, and nothing that
// it did say tells otherwise.
func (a *Authorizer) rulesAllow(u *authn.User, attributes Attributes) bool {
	if a.opts.Rules == nil {
		return false
	}
	grants := func(what Attributes) bool { return a.opts.Rules.Allow(u, what) }
	return !a.lastWords.refuse(u.GetName(), &attributes, grants) && grants(attributes)
}

func (a *Authorizer) review(ctx context.Context, u *authn.User, attributes *Attributes, key Key) (Decision, error) {
	gen, begun := a.decisions.Generation(), a.decisions.Now()
	result, err := review.Create(ctx, a.opts.ReviewTimeout, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return a.opts.AccessReviewer.Create(ctx, reviewOf(u, attributes), metav1.CreateOptions{})
	})
	if err != nil {
		a.metrics.failed.Inc()
		review.LogRejection(&a.setup, a.opts.Log, "subjectaccessreviews", err)
		return Decision{}, review.Error("reviewing access", err)
	}
	d := Decision{
		Allowed:    result.Status.Allowed && !result.Status.Denied,
		Reason:     result.Status.Reason,
		Generation: gen,
	}
	a.metrics.count(d.Allowed)
	keep := a.offlineTTL.Load()
	offline := keep > 0
	ttl, settled := a.TTL(d.Allowed, begun)
	if !settled && d.Allowed {
		keep = ttl // by the state before the change, perhaps
	}
	a.decisions.PutFor(u.GetName(), key, d, gen, ttl, 0)
	if offline {
		now := time.Now()
		if a.lastWords.put(u.GetName(), key, attributes, d, now, now.Add(max(ttl, keep))) {
			a.opts.Told()
		}
	}
	return d, nil
}

func (m *authorizationMetrics) count(allowed bool) {
	if allowed {
		m.allowed.Inc()
	} else {
		m.denied.Inc()
	}
}

// Invalidate drops all decisions, and has the permissions of open watches
// reviewed again. It is to be called when a Role, ClusterRole, RoleBinding or
// ClusterRoleBinding of the upstream was created, deleted or changed in its
// rules, subjects, roleRef or aggregation; changes of metadata alone decide
// nothing. It does not block.
func (a *Authorizer) Invalidate() {
	a.invalidated.Store(a.decisions.Now())
	a.decisions.DropAll()
	a.metrics.invalidations.Inc()
	a.opts.Told()
	select {
	case a.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// SetOfflineTTL replaces Options.OfflineTTL. What was decided before is remembered for
// as long as it was then; with 0 it is forgotten.
func (a *Authorizer) SetOfflineTTL(ttl time.Duration) {
	if a.offlineTTL.Store(ttl); ttl == 0 {
		a.lastWords.drop()
	}
}

// Generation counts the calls of Invalidate.
func (a *Authorizer) Generation() uint64 { return a.decisions.Generation() }

// Clock is the clock by which decisions expire, in nanoseconds.
func (a *Authorizer) Clock() int64 { return a.decisions.Now() }

// Cached returns the decision about u and attributes if it is remembered, and when it was made.
func (a *Authorizer) Cached(u *authn.User, attributes *Attributes) (d Decision, at int64, ok bool) {
	return a.decisions.GetPut(KeyOf(u, attributes))
}

// TTLs are AllowedTTL and DeniedTTL of the options.
func (a *Authorizer) TTLs() (allowed, denied time.Duration) {
	return a.opts.AllowedTTL, a.opts.DeniedTTL
}

// ReviewTimeout is that of the options.
func (a *Authorizer) ReviewTimeout() time.Duration { return a.opts.ReviewTimeout }

// Settled reports whether the upstream decides by all changes of RBAC objects by now.
func (a *Authorizer) Settled() bool { return a.decisions.Now()-a.invalidated.Load() >= int64(Settle) }

// Changed holds a signal after Invalidate.
func (a *Authorizer) Changed() <-chan struct{} { return a.changed }

// TTL is for how long a decision counts that was asked for at begun, on the decisions'
// clock. settled is false if the upstream may have decided by what was true before a change of
// an RBAC object.
func (a *Authorizer) TTL(allowed bool, begun int64) (ttl time.Duration, settled bool) {
	ttl = a.opts.DeniedTTL
	if allowed {
		ttl = a.opts.AllowedTTL
	}
	if at := a.invalidated.Load() + int64(Settle); begun < at {
		return min(ttl, time.Duration(at-a.decisions.Now())), false
	}
	return ttl, true
}

// Remembered returns the decision about u and attributes if it is in memory, or can be made
// within this process. Nothing is sent to the upstream, and nothing counted.
func (a *Authorizer) Remembered(ctx context.Context, u user.Info, attributes Attributes) (d Decision, ok bool) {
	who := authn.NewUser(u)
	switch {
	case who.IsGateway():
		return Decision{Allowed: true}, true
	case a.opts.Decider != nil:
		allowed, reason, err := a.opts.Decider.Decide(ctx, who, attributes)
		return Decision{Allowed: allowed, Reason: reason}, err == nil
	}
	return a.decisions.Get(KeyOf(who, &attributes))
}
