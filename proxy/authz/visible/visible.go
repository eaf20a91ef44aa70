package visible

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/reason"
)

// ErrUnknown is the cause when it cannot be told in which namespaces a user may do something. Its text is for the
// client.
var ErrUnknown = errors.New("kubeweir cannot tell in which namespaces you may")

// Grants is what the RBAC objects of a cluster grant. It is immutable, comparable, and safe for concurrent use.
type Grants interface {
	// Namespaces are those in which u may do what a, which names none, says, in any order and maybe repeated;
	// themselves tells that a is about the Namespaces themselves, each of which is then named by its own name.
	// everywhere tells that it is all namespaces.
	Namespaces(u user.Info, a *authz.Attributes, themselves bool) (names []string, everywhere bool)
	// Allow tells whether u may do what a says.
	Allow(u user.Info, a *authz.Attributes) bool
}

// Options say what visible namespaces are found by. Zero values stand for the defaults, where there are any.
type Options struct {
	// Authorizer confirms. Required.
	Authorizer *authz.Authorizer
	// Grants returns what is granted now, the same value as long as nothing has changed, and nil while that is not
	// known. Required.
	Grants func() Grants
	// All returns a number that is another one once there are other namespaces, and their names. Required.
	All func(ctx context.Context) (state uint64, names func() []string, err error)
	// RecheckPeriod is how often each namespace of an open watch is confirmed, as by revocation.Watches (default 60 s).
	RecheckPeriod time.Duration
	// Most bounds the names of namespaces that are remembered for all users (default 500,000); a user has a quarter.
	Most int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// refusedAgain is when it is asked again for a namespace that the rules grant and the upstream refused soon after an RBAC
// object changed: its authorizer may be behind the rules.
const refusedAgain = authz.Settle / 2

// Finder finds the namespaces in which a user may do what they may not do in all. Those in which the cluster's RBAC
// objects grant it are the candidates, and each counts when the upstream has confirmed it for just that namespace. So
// nothing is ever wider than the sum of what the user may do in one namespace after the other, whatever authorizers the
// upstream has; what another one than RBAC grants is not found.
//
// A set is remembered. After a change of an RBAC object the upstream is asked about the namespaces that have come to be
// candidates, and the others are as good as before. Besides, it is asked about each namespace of a list after AllowedTTL,
// and about each of a watch after RecheckPeriod, while the watch is open a few at a time.
//
// Selectors only limit what may be done, by the definition of SubjectAccessReview. So a namespace in which the user may do
// it without selectors is confirmed for all selectors, and only in the others it is asked with the selectors. Whatever
// selectors there are, that is asked once.
//
// Finder is safe for concurrent use.
type Finder struct {
	opts    Options
	sets    visibleSets
	flights flight.Group[visibleFlight, foundSet]
	places  reviewPlaces
	pace    pace
	metrics visibleMetrics
	panics  *contain.Panics
}

// visibleFlight names calls that share their result: of one user, about one thing, on the same terms.
type visibleFlight struct {
	key   authz.Key
	terms terms
}

// Set is the namespaces in which a user may do something. But for the times at which they were confirmed it is
// immutable.
type Set struct {
	// authz.Decision tells how it was come by.
	authz.Decision
	// Namespaces are those of the user.
	Namespaces *object.Namespaces

	owner      *Finder
	key        authz.Key
	user       *authn.User
	attributes authz.Attributes
	granting   Grants
	// state is that of all namespaces, if they were candidates.
	state uint64
	// base is the set of the same without selectors; nil of one that has none, or selects one namespace.
	base *Set
	// candidates are what the rules grant, in order: those that are confirmed, and those that were refused.
	candidates         []string
	confirmed, refused *reviewed
	// unsettled tells that some were refused before a change of RBAC objects had settled.
	unsettled bool
}

// New returns what remembers no set yet.
func New(opts Options) *Finder {
	review.SetDefault(&opts.Most, defaults.VisibleNamespaces)
	review.SetDefault(&opts.RecheckPeriod, defaults.WatchRecheckPeriod)
	v := &Finder{opts: opts, panics: contain.New(opts.Registerer, nil)}
	v.places.init()
	v.sets.init(opts.Most)
	v.sets.watch(opts.Registerer)
	v.metrics = newVisibleMetrics(opts.Registerer)
	return v
}

// Of returns the namespaces in which u may do what a, a list or watch of all of them, says, and how many reviews were
// made for that; of what others waited for as well its part. With an error, which may be review.ErrNoReview, those are told that
// were made until then: who gives up has caused them.
func (v *Finder) Of(ctx context.Context, u *authn.User, a authz.Attributes) (s *Set, asked float64, err error) {
	var made atomic.Int64
	if s, asked, err = v.find(ctx, u, a, nil, v.termsOf(&a), &made); err != nil {
		asked = float64(made.Load())
	}
	return s, asked, err
}

// find returns a set whose namespaces are confirmed on the terms; before is one of earlier, nil for none. made counts the
// reviews while they are made.
func (v *Finder) find(ctx context.Context, u *authn.User, a authz.Attributes, before *Set, t terms, made *atomic.Int64) (s *Set, asked float64, err error) {
	key := authz.KeyOf(u, &a)
	known := func() *Set {
		if s := v.sets.get(key); s != nil {
			return s
		}
		return before
	}
	if s := known(); s != nil {
		if t.allowed = v.atLeast(t.allowed, len(s.candidates)); v.counts(ctx, s, t) {
			return s, 0, nil
		}
	}
	if review.Disabled(ctx) {
		return nil, 0, review.ErrNoReview
	}
	a = a.Clone()
	key = authz.KeyOf(u, &a)
	found, by, err := v.flights.Do(ctx, visibleFlight{key, t}, func(ctx context.Context) (f foundSet, err error) {
		before := known()
		if before != nil && v.counts(ctx, before, t) { // of the round before this one
			return foundSet{before, 0}, nil
		}
		f.set = &Set{owner: v, key: key, user: u, attributes: a}
		if f.asked, err = v.derive(ctx, f.set, before, t, made); err == nil {
			v.sets.put(f.set)
		}
		return f, err
	})
	return found.set, found.asked * by.Part(), err
}

// foundSet is a set and the reviews that it took.
type foundSet struct {
	set   *Set
	asked float64
}

// counts reports whether nothing has to be asked to know that s is still right.
func (v *Finder) counts(ctx context.Context, s *Set, t terms) bool {
	return v.opts.Grants() == s.granting && v.fresh(s, t) && v.sameNamespaces(ctx, s)
}

// fresh reports whether the reviews of s count still.
func (v *Finder) fresh(s *Set, t terms) bool {
	now := v.opts.Authorizer.Clock()
	return !s.Offline && !s.confirmed.anyDue(now, t.ofAllowed()) && !s.refused.anyDue(now, t.ofRefused(s.unsettled))
}

// sameNamespaces reports whether all namespaces are those that were the candidates of s, if all were.
func (v *Finder) sameNamespaces(ctx context.Context, s *Set) bool {
	if s.state == 0 {
		return true
	}
	state, _, err := v.opts.All(ctx)
	return err == nil && state == s.state
}

// derive completes s, and returns how many reviews that took.
func (v *Finder) derive(ctx context.Context, s, before *Set, t terms, made *atomic.Int64) (reviews float64, err error) {
	authorizer := v.opts.Authorizer
	s.Allowed, s.Generation = true, authorizer.Generation()
	if without := s.withoutSelectors(); without != s.attributes && s.only() == "" {
		var base *Set
		if before != nil {
			base = before.base
		}
		if s.base, reviews, err = v.find(ctx, s.user, without, base, t, made); err != nil {
			return reviews, err
		}
	}
	if err := v.candidates(ctx, s, before); err != nil {
		return reviews, err
	}
	known := v.recall(s, before, t)
	settled := authorizer.Settled()
	asked, err := v.confirm(ctx, s, known, made)
	if err != nil {
		return reviews, err
	}
	v.metrics.count(t, asked)
	s.conclude(before, known, settled)
	return reviews + asked, nil
}

// conclude makes the set of what is known of its candidates.
func (s *Set) conclude(before *Set, known []knownReview, settled bool) {
	var confirmed, refused reviewed
	for i, name := range s.candidates {
		k := &known[i]
		s.Offline = s.Offline || k.offline
		if k.allowed {
			confirmed.add(name, k.at)
		} else {
			refused.add(name, k.at)
			s.unsettled = s.unsettled || k.asked && !settled || !k.asked && before != nil && before.unsettled
		}
	}
	s.confirmed, s.refused = &confirmed, &refused
	if before != nil && !s.Offline && !before.Offline && before.refused.equal(s.refused) {
		before.refused.renew(s.refused)
		s.refused = before.refused
	}
	switch {
	case s.base != nil && s.base.confirmed.equal(s.confirmed):
		s.Namespaces = s.base.Namespaces
		if !s.Offline && !s.base.Offline {
			s.confirmed = s.base.confirmed
		}
	case before != nil && before.confirmed.equal(s.confirmed):
		s.Namespaces = before.Namespaces
		if !s.Offline && !before.Offline && before.hasOwnTimes() {
			before.confirmed.renew(s.confirmed)
			s.confirmed = before.confirmed
		}
	default:
		s.Namespaces = object.NewNamespaces(confirmed.names, s.themselves())
	}
	if len(refused.names) == 0 {
		s.candidates = s.confirmed.names
	}
}

// hasOwnTimes reports whether the times of s are not those of its base, too: what is confirmed by selectors is so for those.
func (s *Set) hasOwnTimes() bool { return s.base == nil || s.base.confirmed != s.confirmed }

// themselves reports whether it is the Namespaces themselves that are listed.
func (s *Set) themselves() bool {
	return s.attributes.Resource == "namespaces" && s.attributes.APIGroup == ""
}

// withoutSelectors is what s is about, not narrowed by what the objects have, or by their names.
func (s *Set) withoutSelectors() authz.Attributes {
	a := s.attributes
	a.FieldSelector, a.LabelSelector = "", ""
	if !s.themselves() {
		a.Name = ""
	}
	return a
}

// candidates finds the namespaces that the rules grant.
func (v *Finder) candidates(ctx context.Context, s, before *Set) error {
	if s.granting = v.opts.Grants(); s.granting == nil {
		return fmt.Errorf("%w: it does not hold the RBAC objects of the cluster", ErrUnknown)
	}
	for _, same := range []*Set{before, s.sameRights()} {
		if same != nil && same.granting == s.granting && v.sameNamespaces(ctx, same) {
			s.state, s.candidates = same.state, same.candidates
			return nil
		}
	}
	names, everywhere := s.granted()
	if everywhere {
		state, all, err := v.opts.All(ctx)
		if err != nil {
			return fmt.Errorf("%w: it does not hold the namespaces of the cluster", ErrUnknown)
		}
		s.state, names = state, all()
	}
	if only := s.only(); only != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != only })
	}
	slices.Sort(names)
	s.candidates = slices.Compact(names)
	if most := v.sets.mostNames(); len(s.candidates) > most {
		return fmt.Errorf("%w: there are more than %d", ErrUnknown, most)
	}
	return nil
}

// sameRights is the base if it has the same candidates: by rules that do not look at names, as they do not at selectors.
func (s *Set) sameRights() *Set {
	if s.attributes.Name != "" {
		return nil
	}
	return s.base
}

// granted are the namespaces in which the rules grant all permissions: who loses one of them is no candidate any more, and
// needs no review for that.
func (s *Set) granted() (names []string, everywhere bool) {
	everywhere = true
	for _, a := range s.permissions("") {
		some, all := s.granting.Namespaces(s.user, &a, s.themselves())
		switch {
		case all:
		case everywhere:
			names, everywhere = some, false
		default:
			slices.Sort(some)
			names = slices.DeleteFunc(names, func(name string) bool {
				_, both := slices.BinarySearch(some, name)
				return !both
			})
		}
	}
	return names, everywhere
}

// only is the one namespace that the field selector leaves, "" if it leaves more.
func (s *Set) only() string {
	if s.themselves() {
		return s.attributes.Name
	}
	selector, err := fields.ParseSelector(s.attributes.FieldSelector)
	if err != nil {
		return ""
	}
	only, _ := selector.RequiresExactMatch("metadata.namespace")
	return only
}

// permissions are what the user needs to see a namespace: those that kube-apiserver asks for where just that one is
// listed or watched. A Namespace itself is listed by getting it, and to watch it takes both, so that no watch shows what
// a list does not; neither is authorized with selectors.
func (s *Set) permissions(name string) []authz.Attributes {
	a := s.attributes
	a.Namespace = name
	if !s.themselves() {
		return []authz.Attributes{a}
	}
	a.Name, a.FieldSelector, a.LabelSelector = name, "", ""
	get := a
	get.Verb = "get"
	if a.Verb == "watch" {
		return []authz.Attributes{get, a}
	}
	return []authz.Attributes{get}
}

// Hold counts what a watch of the set takes; false if there is no room for that, and nothing to be released.
func (s *Set) Hold() bool { return s.owner.sets.hold(s) }

// Release is the end of Hold.
func (s *Set) Release() { s.owner.sets.release(s) }

// Recheck finds out whether a watch of s may go on. Of the namespaces those are confirmed whose time has come.
func (s *Set) Recheck(ctx context.Context) (review.Outcome, reason.WatchEnd) {
	t := s.owner.rechecks()
	now, _, err := s.owner.find(ctx, s.user, s.attributes, s, t, new(atomic.Int64))
	switch {
	case err != nil:
		return review.Unknown, reason.Unconfirmed
	case now.Namespaces.ID() != s.Namespaces.ID(), s.owner.allowsAll(ctx, now):
		return review.Lost, reason.NamespacesChanged
	case now.Offline:
		return review.Offline, reason.NotEnded
	case now.confirmed.anyDue(s.owner.opts.Authorizer.Clock(), t.latest()):
		return review.Unknown, reason.Unconfirmed // there are too many to confirm
	}
	return review.Good, reason.NotEnded
}

// Key stands for the user and what the set is about.
func (s *Set) Key() authz.Key { return s.key }

// Rights are those by which a set has its namespaces.
type Rights struct {
	permission authz.Key
	namespaces string
}

// Rights names the rights by which a set has these namespaces: Lost is alike for all of one name.
func (s *Set) Rights() Rights {
	a := s.attributes
	a.FieldSelector, a.LabelSelector = "", ""
	return Rights{permission: authz.KeyOf(s.user, &a), namespaces: s.Namespaces.ID()}
}

// Lost reports whether the rules, as they are now, do not grant one of the namespaces any more. Nobody is asked.
func (s *Set) Lost() bool {
	now := *s
	if now.granting = s.owner.opts.Grants(); now.granting == nil || now.granting == s.granting {
		return false // or nobody knows
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

// allowsAll reports whether the user may now do in all namespaces what s is about. What the set says of the Namespaces
// themselves does not tell: to watch all of them takes no right to get one.
func (v *Finder) allowsAll(ctx context.Context, s *Set) bool {
	if !s.granting.Allow(s.user, &s.attributes) {
		return false
	}
	d, err := v.opts.Authorizer.Authorize(ctx, s.user, s.attributes)
	return err == nil && d.Allowed
}

// NextReview is when a watch of s is to be looked at again, after least at the soonest: where all namespaces were candidates, a new one is no change
// of a right that somebody is told of.
func (s *Set) NextReview(now time.Time, least time.Duration) time.Time {
	due := least
	if s.state == 0 {
		due = max(due, s.confirmed.nextDue(s.owner.opts.Authorizer.Clock(), s.owner.rechecks().ofAllowed()))
	}
	return now.Add(due)
}
