package identity

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

// AuthorizerOptions say how decisions are made and remembered. Zero values stand
// for the defaults.
type AuthorizerOptions struct {
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
	// OfflineTTL is how much longer than AllowedTTL a permission counts while the
	// upstream cannot be asked, or takes more than 2 s. Default: not at all.
	OfflineTTL time.Duration
	// CacheSize bounds the remembered decisions (default 16384).
	CacheSize int
	// ReviewTimeout is how long a request waits for a decision (default 10 s).
	ReviewTimeout time.Duration
	// Log is told when the upstream refuses to decide. Default: discarded.
	Log *slog.Logger
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

func (o *AuthorizerOptions) setDefaults() {
	setDefault(&o.AllowedTTL, defaults.AllowedTTL)
	setDefault(&o.DeniedTTL, defaults.DeniedTTL)
	setDefault(&o.CacheSize, defaults.DecisionCacheSize)
	setDefault(&o.ReviewTimeout, defaults.ReviewTimeout)
	setDefault(&o.Log, slog.New(slog.DiscardHandler))
}

// settle is how long after a change the upstream may still decide by the old
// state: its authorizer follows RBAC objects by watches of its own, and another
// replica may lag behind the one that told of the change. Reviews begun in that
// time are not remembered beyond it.
const settle = time.Second

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
	// Watches.Register.
	Generation uint64
}

// decisionKey stands for a user and attributes: the attributes themselves, or the
// digest of large ones.
type decisionKey struct {
	user  digest
	a     Attributes
	large digest
}

func keyOf(u *User, a *Attributes) decisionKey {
	if a.size() > maxKeyBytes {
		return decisionKey{user: u.digest, large: a.digest()}
	}
	return decisionKey{user: u.digest, a: *a}
}

// Authorizer decides by SubjectAccessReview and remembers the decisions. It fails
// closed: an error allows nothing. It is safe for concurrent use.
type Authorizer struct {
	opts      AuthorizerOptions
	metrics   *authorizationMetrics
	decisions *ttlCache[decisionKey, Decision]
	flights   flight.Group[decisionKey, Decision]
	turns     turns
	outage    outage
	setup     complaint

	// invalidated is when Invalidate was last called, on the decisions' clock;
	// far in the past before the first time.
	invalidated atomic.Int64
	changed     chan struct{} // for Watches; holds one signal
}

// NewAuthorizer returns an Authorizer. It owns no goroutine.
func NewAuthorizer(opts AuthorizerOptions) *Authorizer {
	opts.setDefaults()
	a := &Authorizer{
		opts:      opts,
		decisions: newTTLCache[decisionKey, Decision](opts.CacheSize),
		changed:   make(chan struct{}, 1),
	}
	a.invalidated.Store(-int64(settle))
	a.metrics = newAuthorizationMetrics(opts.Registerer, a.decisions.len, opts.CacheSize)
	return a
}

// Authorize asks whether u may do what attributes say, as the upstream would be
// asked. The gateway's own identity may do everything here: the upstream decided
// when the gateway read what is in its cache. A *User is looked up without
// hashing it again.
func (a *Authorizer) Authorize(ctx context.Context, u user.Info, attributes Attributes) (Decision, error) {
	who := NewUser(u)
	if who.gateway {
		return Decision{Allowed: true, Generation: a.decisions.generation()}, nil
	}
	if who.undecided {
		return Decision{}, ErrUpstreamDecides
	}
	if a.opts.Decider != nil {
		return a.decide(ctx, who, attributes)
	}
	key := keyOf(who, &attributes)
	if d, ok := a.decisions.get(key); ok {
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
func (a *Authorizer) decide(ctx context.Context, u *User, attributes Attributes) (Decision, error) {
	d := Decision{Generation: a.decisions.generation()}
	var err error
	if d.Allowed, d.Reason, err = a.opts.Decider.Decide(ctx, u, attributes); err != nil {
		a.metrics.failed.Inc()
		return Decision{}, reviewError("reviewing access", err)
	}
	a.metrics.count(d.Allowed)
	return d, nil
}

// ask decides what is not remembered. Simultaneous callers share a review, but
// never one that began before they asked.
func (a *Authorizer) ask(ctx context.Context, u *User, attributes Attributes) (Decision, error) {
	attributes = attributes.clone()
	key := keyOf(u, &attributes)
	stale, known := a.decisions.getStale(key)
	known = known && stale.Allowed
	if known && !a.outage.ask(a.decisions.now()) {
		a.metrics.allowedOffline.Inc()
		return stale, nil
	}
	leave, err := a.turns.take(ctx, u.digest)
	if err != nil {
		return Decision{}, err
	}
	defer leave()
	patient, cancel := reviewTimeout(ctx, known, a.opts.ReviewTimeout)
	defer cancel()
	d, _, err := a.flights.Do(patient, key, func(ctx context.Context) (Decision, error) {
		if d, ok := a.decisions.get(key); ok { // of the round before this one
			return d, nil
		}
		return a.review(ctx, u, &attributes, key)
	})
	switch {
	case err == nil:
		a.outage.end()
		return d, nil
	case known && errors.Is(err, ErrUnavailable) && stale.Generation == a.decisions.generation():
		a.outage.begin(a.decisions.now())
		a.metrics.allowedOffline.Inc()
		return stale, nil
	}
	return Decision{}, err
}

func (a *Authorizer) review(ctx context.Context, u *User, attributes *Attributes, key decisionKey) (Decision, error) {
	gen, begun := a.decisions.generation(), a.decisions.now()
	result, err := createReview(ctx, a.opts.ReviewTimeout, func(ctx context.Context) (*authorizationv1.SubjectAccessReview, error) {
		return a.opts.AccessReviewer.Create(ctx, reviewOf(u, attributes), metav1.CreateOptions{})
	})
	if err != nil {
		a.metrics.failed.Inc()
		complainOfSetup(&a.setup, a.opts.Log, "subjectaccessreviews", err)
		return Decision{}, reviewError("reviewing access", err)
	}
	d := Decision{
		Allowed:    result.Status.Allowed && !result.Status.Denied,
		Reason:     result.Status.Reason,
		Generation: gen,
	}
	ttl, keep := a.opts.DeniedTTL, time.Duration(0)
	a.metrics.count(d.Allowed)
	if d.Allowed {
		ttl, keep = a.opts.AllowedTTL, a.opts.AllowedTTL+a.opts.OfflineTTL
	}
	if settled := a.invalidated.Load() + int64(settle); begun < settled {
		ttl = min(ttl, time.Duration(settled-a.decisions.now()))
		keep = ttl
	}
	a.decisions.put(key, d, gen, ttl, keep)
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
	a.invalidated.Store(a.decisions.now())
	a.decisions.dropAll()
	a.metrics.invalidations.Inc()
	select {
	case a.changed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Generation counts the calls of Invalidate.
func (a *Authorizer) Generation() uint64 { return a.decisions.generation() }
