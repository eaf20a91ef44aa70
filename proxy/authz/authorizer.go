package authz

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// AccessReviewer creates SubjectAccessReviews; AuthorizationV1Interface.SubjectAccessReviews() of
// client-go is one.
type AccessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Decider decides as an upstream in this process does. It is safe for concurrent use.
type Decider interface {
	// Decide returns whether u may do a, and the reason if there is one. An error allows nothing.
	Decide(ctx context.Context, u user.Info, a Attributes) (allowed bool, reason string, err error)
}

// Rules are the rules of the upstream, as far as this process has them. They are safe for
// concurrent use.
type Rules interface {
	// Allow reports whether the rules, complete and not too old, allow u to do a. It returns false
	// if that is unknown, and always while the upstream is reachable.
	Allow(u user.Info, a Attributes) bool
}

// Options configure an Authorizer. Zero values select the defaults.
type Options struct {
	// AccessReviewer decides. Required without a Decider.
	AccessReviewer AccessReviewer
	// Decider, if not nil, decides each time instead: nothing is cached.
	Decider Decider
	// TrustedByUpstream is set if the upstream trusts the gateway on who a client is, so that each
	// client can be forwarded as itself; see Impersonate.
	TrustedByUpstream bool
	// AllowedTTL is how long a permission is cached (default 10 s), DeniedTTL how long a denial
	// (default 5 s).
	AllowedTTL, DeniedTTL time.Duration
	// Rules, if not nil, decide requests that the upstream has not decided within OfflineTTL, or
	// whose decision a change of an RBAC object has invalidated.
	Rules Rules
	// Settings: OfflineTTL is how long the last decision counts offline (Decision.Offline).
	// CacheSize limits the cached decisions, and separately those saved for OfflineTTL (default
	// 16384).
	review.Settings
}

func (o *Options) setDefaults() {
	o.AllowedTTL = cmp.Or(o.AllowedTTL, defaults.AllowedTTL)
	o.DeniedTTL = cmp.Or(o.DeniedTTL, defaults.DeniedTTL)
	o.Complete(defaults.DecisionCacheSize)
}

const (
	// Settle is how long after a change the upstream may still decide by the state before: its
	// authorizer follows RBAC objects by watches of its own, and another replica may lag behind the
	// one that reported the change. Reviews that begin in that time are not cached beyond it.
	Settle = time.Second
	// queueWait is how long a review waits for the other reviews of its user.
	queueWait = 3 * time.Second
)

// Authorizer decides by SubjectAccessReview and caches the decisions. It is safe for concurrent use
// and owns no goroutine.
type Authorizer struct {
	opts      Options
	metrics   *metrics
	decisions *review.Cache[Key, Decision] // permissions are stale entries for OfflineTTL
	denials   *denials                     // not dropped by Invalidate; empty without OfflineTTL
	flights   flight.Group[Key, Decision]
	queue     review.FairQueue[authn.Digest]
	reviews   *review.Reviews

	// invalidated is when Invalidate was last called, by Clock; far in the past before the first
	// call.
	invalidated atomic.Int64
	changed     chan struct{} // for revocation.Watches; holds one signal
}

// New returns an Authorizer.
func New(opts Options) *Authorizer {
	opts.setDefaults()
	a := &Authorizer{
		opts:      opts,
		decisions: review.NewCache[Key, Decision](opts.CacheSize),
		denials:   newDenials(opts.CacheSize),
		changed:   make(chan struct{}, 1),
		queue:     review.FairQueue[authn.Digest]{PerUser: review.UserReviews},
		reviews:   review.New("subjectaccessreviews", &opts.Settings),
	}
	a.invalidated.Store(-int64(Settle))
	a.metrics = newMetrics(opts.Registerer, a.decisions.Len, a.offlineLen, opts.CacheSize)
	return a
}

// Authorize decides whether u may do what attributes say, as the upstream does. The gateway's own
// identity may do everything here: the upstream decided when the gateway filled the cache. A
// *authn.User is looked up without hashing it again.
func (a *Authorizer) Authorize(ctx context.Context, u user.Info, attributes Attributes) (Decision, error) {
	who := authn.NewUser(u)
	if who.IsGateway() {
		return Decision{Allowed: true, Generation: a.Generation()}, nil
	}
	if who.UpstreamDecides() {
		return Decision{}, ErrUpstreamDecides
	}
	if a.opts.Decider != nil {
		return a.decide(ctx, who, attributes)
	}
	key := KeyOf(who, &attributes)
	if d, ok := a.decisions.Get(key); ok {
		a.metrics.cached.count(d.Allowed)
		return d, nil
	}
	return a.review(ctx, who, attributes)
}

// decide uses the Decider.
func (a *Authorizer) decide(ctx context.Context, u *authn.User, attributes Attributes) (Decision, error) {
	d := Decision{Generation: a.Generation()}
	var err error
	if d.Allowed, d.Reason, err = a.opts.Decider.Decide(ctx, u, attributes); err != nil {
		a.metrics.failed.Inc()
		return Decision{}, &DecisionError{err}
	}
	a.metrics.reviewed.count(d.Allowed)
	return d, nil
}

// DecisionError is an error of a Decider. kube-apiserver responds to it in plain text with its cause.
type DecisionError struct{ Err error }

func (e *DecisionError) Error() string { return "reviewing access: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DecisionError) Unwrap() error { return e.Err }

// review decides what is not cached. Simultaneous callers share a review, but never one that began
// before they called.
func (a *Authorizer) review(ctx context.Context, u *authn.User, attributes Attributes) (Decision, error) {
	attributes = attributes.Clone()
	key := KeyOf(u, &attributes)
	_, known := a.lastDecision(u, key)
	known = known && a.reviews.OfflineTTL() > 0
	if a.reviews.Unreachable() {
		if d, ok := a.decideOffline(u, attributes, key); ok {
			return d, nil
		}
	}
	if review.Disabled(ctx) {
		return Decision{}, review.ErrNoReview
	}
	waiting, cancel := context.WithTimeoutCause(ctx, queueWait,
		apierrors.NewTooManyRequests("too many of the user's permissions are being checked, please try again later", 1))
	leave, err := a.queue.Enter(waiting, u.Digest())
	cancel()
	if err != nil {
		return Decision{}, err
	}
	defer leave()
	limited, cancel := a.reviews.WithTimeout(ctx, known)
	defer cancel()
	d, by, err := a.flights.Do(limited, key, func(ctx context.Context) (Decision, error) {
		if d, ok := a.decisions.Get(key); ok { // from the round before this one
			return d, nil
		}
		d, err := a.create(ctx, u, &attributes, key)
		d.Reviews = 1
		return d, err
	})
	switch {
	case err == nil:
		d.Reviews *= by.Part()
		return d, nil
	case errors.Is(err, review.ErrUnavailable):
		if d, ok := a.decideOffline(u, attributes, key); ok {
			now := a.Clock()
			again := review.Entry[Key, Decision]{Key: key, Owner: u.GetName(), Added: now, TTL: review.StaleFor}
			switch e := a.decisions.Find(key); {
			case e != nil && e.Fresh(now): // of a review that was shared, and has ended just now
				return e.Value, nil
			case e != nil: // for a while, but not beyond its time
				again = *e
				again.TTL = min(time.Duration(now-e.Added)+review.StaleFor, e.Keep)
			}
			again.Value, again.Generation = d, d.Generation
			a.decisions.Put(again)
			return d, nil
		}
	}
	return Decision{}, err
}

// create creates a SubjectAccessReview and caches the decision.
func (a *Authorizer) create(ctx context.Context, u *authn.User, attributes *Attributes, key Key) (Decision, error) {
	gen, began := a.Generation(), a.Clock()
	response, err := review.Create(ctx, a.reviews, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return a.opts.AccessReviewer.Create(ctx, reviewOf(u, attributes), metav1.CreateOptions{})
	})
	if err != nil {
		a.metrics.failed.Inc()
		return Decision{}, err
	}
	d := Decision{
		Allowed:    response.Status.Allowed && !response.Status.Denied,
		Reason:     response.Status.Reason,
		Generation: gen,
	}
	a.metrics.reviewed.count(d.Allowed)
	ttl, settled := a.TTL(d.Allowed, began)
	entry := review.Entry[Key, Decision]{Key: key, Owner: u.GetName(), Value: d, Generation: gen, Added: a.Clock(), TTL: ttl}
	last, known := a.lastDecision(u, key)
	keep := a.reviews.OfflineTTL()
	changed := keep > 0 && (!known || last.Allowed != d.Allowed)
	switch now := time.Now(); {
	case d.Allowed:
		a.denials.drop(u.GetName(), key)
		if settled { // otherwise perhaps by the state before a change
			entry.Keep = keep
		}
	case keep > 0:
		a.denials.put(&denial{name: u.GetName(), key: key, attributes: *attributes, reason: d.Reason, made: now, until: now.Add(max(ttl, keep))})
	}
	a.decisions.Put(entry)
	if changed {
		a.opts.OnChange()
	}
	return d, nil
}

// lastDecision returns the upstream's last decision if it still counts: a permission counts until an
// RBAC object changes.
func (a *Authorizer) lastDecision(u *authn.User, key Key) (d Decision, ok bool) {
	if denied := a.denials.get(u.GetName(), key); denied != nil {
		return Decision{Reason: denied.reason}, true
	}
	if e := a.decisions.Find(key); e != nil {
		return e.Value, true
	}
	return d, false
}

// offlineLen returns how many decisions are saved for OfflineTTL.
func (a *Authorizer) offlineLen() (n int) {
	if a.reviews.OfflineTTL() == 0 {
		return 0
	}
	for e := range a.decisions.All() {
		if e.Keep > 0 {
			n++
		}
	}
	return n + a.denials.len()
}

// decideOffline decides while the upstream is unavailable: by the upstream's last decision, or else
// by its RBAC objects. A request that the upstream denied stays denied.
func (a *Authorizer) decideOffline(u *authn.User, attributes Attributes, key Key) (d Decision, ok bool) {
	if a.reviews.OfflineTTL() == 0 {
		return d, false
	}
	gen := a.Generation()
	d, ok = a.lastDecision(u, key)
	if !ok && a.rulesAllow(u, attributes) {
		d, ok = Decision{Allowed: true}, true
	}
	if !ok {
		return Decision{}, false
	}
	d.Generation, d.Offline = gen, true
	a.metrics.offline.count(d.Allowed)
	return d, true
}

// rulesAllow reports whether the rules allow what the upstream has not decided, and no denial of the
// upstream contradicts them.
func (a *Authorizer) rulesAllow(u *authn.User, attributes Attributes) bool {
	if a.opts.Rules == nil {
		return false
	}
	allow := func(what Attributes) bool { return a.opts.Rules.Allow(u, what) }
	return allow(attributes) && !a.denials.contradict(u.GetName(), &attributes, allow)
}

// Invalidate drops all decisions and has the permissions of open watches reviewed again. It must be
// called when a Role, ClusterRole, RoleBinding or ClusterRoleBinding of the upstream was created,
// deleted or changed in its rules, subjects, roleRef or aggregation; changes of metadata alone decide
// nothing. It does not block.
func (a *Authorizer) Invalidate() {
	a.invalidated.Store(a.Clock())
	a.decisions.DropAll()
	a.metrics.invalidations.Inc()
	a.opts.OnChange()
	select {
	case a.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// SetOfflineTTL replaces Settings.OfflineTTL for decisions from now on. When it becomes 0, older
// permissions are dropped. Denials stay, so that rules do not overrule them when it is set again.
func (a *Authorizer) SetOfflineTTL(ttl time.Duration) {
	before := a.reviews.OfflineTTL()
	if a.reviews.SetOfflineTTL(ttl); ttl == 0 && before > 0 {
		a.decisions.DropAll()
	}
}

// Generation counts how often all decisions were dropped.
func (a *Authorizer) Generation() uint64 { return a.decisions.Generation() }

// Changed returns a channel that receives a signal after Invalidate.
func (a *Authorizer) Changed() <-chan struct{} { return a.changed }

// Clock returns the time by which decisions expire, in nanoseconds.
func (a *Authorizer) Clock() int64 { return a.decisions.Now() }

// TTL returns for how long a decision counts that was requested at began, by Clock. settled is false
// if the upstream may have decided by the state before a change of an RBAC object.
func (a *Authorizer) TTL(allowed bool, began int64) (ttl time.Duration, settled bool) {
	ttl = a.opts.DeniedTTL
	if allowed {
		ttl = a.opts.AllowedTTL
	}
	if at := a.invalidated.Load() + int64(Settle); began < at {
		return min(ttl, time.Duration(at-a.Clock())), false
	}
	return ttl, true
}

// TTLs returns AllowedTTL and DeniedTTL of the options.
func (a *Authorizer) TTLs() (allowed, denied time.Duration) {
	return a.opts.AllowedTTL, a.opts.DeniedTTL
}

// ReviewTimeout returns that of the options.
func (a *Authorizer) ReviewTimeout() time.Duration { return a.opts.ReviewTimeout }

// Settled reports whether the upstream decides by the state after the last change of an RBAC object.
func (a *Authorizer) Settled() bool { return a.Clock()-a.invalidated.Load() >= int64(Settle) }

// Cached returns the decision about u and attributes if it is cached, and when it was made, by
// Clock.
func (a *Authorizer) Cached(u *authn.User, attributes *Attributes) (d Decision, at int64, ok bool) {
	e := a.decisions.Find(KeyOf(u, attributes))
	if e == nil || !e.Fresh(a.Clock()) {
		return d, 0, false
	}
	return e.Value, e.Added, true
}

// Inspect returns the decision about u and attributes if it is cached or can be made in this
// process. It creates no review and counts nothing.
func (a *Authorizer) Inspect(ctx context.Context, u user.Info, attributes Attributes) (d Decision, ok bool) {
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
