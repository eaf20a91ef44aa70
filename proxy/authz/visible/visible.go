package visible

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// ErrUnknown is the cause if the namespaces in which a user may do something are unknown. Its text
// is for the client.
var ErrUnknown = errors.New("kubeweir cannot tell in which namespaces you may")

// Options configure a Finder. Zero values select the defaults, if there are any.
type Options struct {
	// Authorizer confirms. Required.
	Authorizer *authz.Authorizer
	// Grants returns what is granted now: the same value as long as nothing has changed, and nil
	// while that is unknown. Required.
	Grants func() Grants
	// All returns the names of all namespaces and a number that changes with them. Required.
	All func(ctx context.Context) (state uint64, names func() []string, err error)
	// RecheckPeriod is how often each namespace of an open watch is confirmed, as in package
	// revocation (default 60 s).
	RecheckPeriod time.Duration
	// Max limits the names of namespaces that are cached for all users (default 500,000). A user may
	// have a quarter.
	Max int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// Finder finds sets of visible namespaces. It is safe for concurrent use.
type Finder struct {
	opts    Options
	sets    *setCache
	flights flight.Group[flightKey, found]
	metrics metrics
	*reviewer
}

// flightKey identifies calls that share their result: about the same, on the same terms.
type flightKey struct {
	key   authz.Key
	terms terms
}

// found is a set and the number of reviews that it took.
type found struct {
	set     *Set
	reviews float64
}

// New returns a Finder.
func New(opts Options) *Finder {
	opts.Max = cmp.Or(opts.Max, defaults.VisibleNamespaces)
	opts.RecheckPeriod = cmp.Or(opts.RecheckPeriod, defaults.WatchRecheckPeriod)
	f := &Finder{
		opts: opts, sets: newSetCache(opts.Max),
		reviewer: &reviewer{
			authorizer: opts.Authorizer, period: opts.RecheckPeriod, panics: contain.New(opts.Registerer, nil),
			queue:   review.FairQueue[string]{PerUser: userReviews, Total: make(chan struct{}, allReviews)},
			recheck: rate.NewLimiter(rechecksPerSecond, rechecksPerSecond),
		},
	}
	f.metrics = newMetrics(opts.Registerer, f.sets)
	return f
}

// Of returns the namespaces in which u may do a, which is a list or watch of all namespaces. It
// also returns how many reviews this caller caused; a review shared with others counts in part.
// With an error, which may be review.ErrNoReview, it returns the reviews made until then.
func (f *Finder) Of(ctx context.Context, u *authn.User, a authz.Attributes) (s *Set, reviews float64, err error) {
	var made atomic.Int64
	q := query{user: u, attributes: a, terms: f.termsOf(&a), made: &made}
	s, reviews, err = f.find(ctx, q)
	if err != nil {
		return nil, float64(made.Load()), err
	}
	return s, reviews, nil
}

// Hold accounts for a watch of the set. It returns false if there is no room for it, and Release
// must not be called.
func (s *Set) Hold() bool { return s.finder.sets.hold(s) }

// Release undoes Hold.
func (s *Set) Release() { s.finder.sets.release(s) }

// Recheck reports whether a watch of s may go on. It confirms the namespaces that are due.
func (s *Set) Recheck(ctx context.Context) (review.Outcome, reason.WatchEnd) {
	t := s.finder.recheckTerms()
	now, _, err := s.finder.find(ctx, query{user: s.user, attributes: s.attributes, before: s, terms: t, made: new(atomic.Int64)})
	switch {
	case err != nil:
		return review.Unknown, reason.Unconfirmed
	case now.Namespaces.ID() != s.Namespaces.ID(), s.finder.allowsAll(ctx, now):
		return review.Lost, reason.NamespacesChanged
	case now.Offline:
		return review.Offline, reason.NotEnded
	case now.confirmed.anyDue(s.finder.authorizer.Clock(), lifetime{whole: t.allowed}):
		return review.Unknown, reason.Unconfirmed // there are too many to confirm in time
	}
	return review.Good, reason.NotEnded
}

// NextReview returns when a watch of s must be reviewed again, but not before least has passed. If
// all namespaces were candidates, the review is due soon: a new namespace may become visible
// without a change of RBAC objects.
func (s *Set) NextReview(now time.Time, least time.Duration) time.Time {
	if s.state != 0 {
		return now.Add(least)
	}
	return now.Add(max(least, s.confirmed.nextDue(s.finder.authorizer.Clock(), s.finder.recheckTerms().ofAllowed())))
}

// Lost reports whether the RBAC objects no longer grant one of the namespaces. It creates no review.
func (s *Set) Lost() bool {
	now := *s
	if now.grants = s.finder.opts.Grants(); now.grants == nil || now.grants == s.grants {
		return false // or unknown
	}
	names, everywhere := now.granted()
	if everywhere {
		return false
	}
	left := make(map[string]struct{}, s.Namespaces.Len())
	for _, name := range names {
		if s.Namespaces.Has(name) {
			left[name] = struct{}{}
		}
	}
	return len(left) < s.Namespaces.Len()
}

// query asks for a set whose namespaces are confirmed on the terms.
type query struct {
	user       *authn.User
	attributes authz.Attributes
	before     *Set // an earlier set, or nil
	terms      terms
	made       *atomic.Int64 // counts the reviews while they are made
}

func (f *Finder) find(ctx context.Context, q query) (s *Set, reviews float64, err error) {
	key := authz.KeyOf(q.user, &q.attributes)
	known := func() *Set {
		if s := f.sets.get(key, true); s != nil {
			return s
		}
		return q.before
	}
	if s := known(); s != nil {
		if q.terms.allowed = f.atLeast(q.terms.allowed, len(s.candidates)); f.isCurrent(ctx, s, q.terms) {
			return s, 0, nil
		}
	}
	if review.Disabled(ctx) {
		return nil, 0, review.ErrNoReview
	}
	q.attributes = q.attributes.Clone()
	key = authz.KeyOf(q.user, &q.attributes)
	result, by, err := f.flights.Do(ctx, flightKey{key, q.terms}, func(ctx context.Context) (r found, err error) {
		if q.before = known(); q.before != nil && f.isCurrent(ctx, q.before, q.terms) { // from the round before this one
			return found{q.before, 0}, nil
		}
		r.set = &Set{finder: f, key: key, user: q.user, attributes: q.attributes}
		if r.reviews, err = f.derive(ctx, r.set, q); err == nil {
			f.sets.put(r.set)
		}
		return r, err
	})
	return result.set, result.reviews * by.Part(), err
}

// isCurrent reports whether s is right without any review.
func (f *Finder) isCurrent(ctx context.Context, s *Set, t terms) bool {
	return f.opts.Grants() == s.grants && f.isFresh(s, t) && f.sameNamespaces(ctx, s)
}

// isFresh reports whether the reviews of s still count.
func (f *Finder) isFresh(s *Set, t terms) bool {
	now := f.authorizer.Clock()
	return !s.Offline && !s.confirmed.anyDue(now, t.ofAllowed()) && !s.denied.anyDue(now, t.ofDenied(s.unsettled))
}

// sameNamespaces reports whether the namespaces of the cluster are those that were the candidates of
// s, if all were.
func (f *Finder) sameNamespaces(ctx context.Context, s *Set) bool {
	if s.state == 0 {
		return true
	}
	state, _, err := f.opts.All(ctx)
	return err == nil && state == s.state
}

// derive completes s and returns how many reviews that took.
func (f *Finder) derive(ctx context.Context, s *Set, q query) (reviews float64, err error) {
	s.Allowed, s.Generation = true, f.authorizer.Generation()
	if without := s.withoutSelectors(); without != s.attributes && s.only() == "" {
		base := query{user: s.user, attributes: without, terms: q.terms, made: q.made}
		if q.before != nil {
			base.before = q.before.base
		}
		if s.base, reviews, err = f.find(ctx, base); err != nil {
			return reviews, err
		}
	}
	if err := f.findCandidates(ctx, s, q.before); err != nil {
		return reviews, err
	}
	known := f.recall(s, q.before, q.terms)
	settled := f.authorizer.Settled()
	made, err := f.confirm(ctx, s, known, q.made)
	if err != nil {
		return reviews, err
	}
	f.metrics.count(q.terms, made)
	s.conclude(q.before, known, settled)
	return reviews + made, nil
}

// findCandidates finds the namespaces that the RBAC objects grant.
func (f *Finder) findCandidates(ctx context.Context, s, before *Set) error {
	if s.grants = f.opts.Grants(); s.grants == nil {
		return fmt.Errorf("%w: it does not hold the RBAC objects of the cluster", ErrUnknown)
	}
	for _, same := range []*Set{before, s.sameRights()} {
		if same != nil && same.grants == s.grants && f.sameNamespaces(ctx, same) {
			s.state, s.candidates = same.state, same.candidates
			return nil
		}
	}
	names, everywhere := s.granted()
	if everywhere {
		state, all, err := f.opts.All(ctx)
		if err != nil {
			return fmt.Errorf("%w: it does not hold the namespaces of the cluster", ErrUnknown)
		}
		s.state, names = state, all()
	}
	s.candidates = s.selected(names)
	if limit := f.sets.maxNames(); len(s.candidates) > limit {
		return fmt.Errorf("%w: there are more than %d", ErrUnknown, limit)
	}
	return nil
}

// allowsAll reports whether the user may now do in all namespaces what s is about. The Namespaces
// of the set are not enough to decide that: a watch of all namespaces requires no permission to get
// one.
func (f *Finder) allowsAll(ctx context.Context, s *Set) bool {
	if !s.grants.Allow(s.user, &s.attributes) {
		return false
	}
	d, err := f.authorizer.Authorize(ctx, s.user, s.attributes)
	return err == nil && d.Allowed
}

// Inspection is the known state of the namespaces in which a user may do something.
type Inspection struct {
	// Set is the cached set, or nil. Current is true if using it takes no review, as long as the
	// namespaces of the cluster do not change.
	Set     *Set
	Current bool
	// Known is true if the RBAC objects of the cluster are known. Candidates is then the number of
	// namespaces that they grant, unless they grant it Everywhere.
	Known, Everywhere bool
	Candidates        int
}

// Inspect returns what is known about the set that Of would return. It creates no review, and does
// not count as a use of the set.
func (f *Finder) Inspect(u *authn.User, a authz.Attributes) (i Inspection) {
	key := authz.KeyOf(u, &a)
	s := &Set{key: key, user: u, attributes: a, grants: f.opts.Grants()}
	if i.Known = s.grants != nil; i.Known {
		names, everywhere := s.granted()
		i.Candidates, i.Everywhere = len(s.selected(names)), everywhere
	}
	if cached := f.sets.get(key, false); cached != nil {
		i.Set = cached
		t := f.termsOf(&a)
		t.allowed = f.atLeast(t.allowed, len(cached.candidates))
		i.Current = cached.grants == s.grants && f.isFresh(cached, t)
	}
	return i
}
