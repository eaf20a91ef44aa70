package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/reason"
)

// ErrNotVisible is the cause when it cannot be told in which namespaces a user may do something. Its text is for the
// client.
var ErrNotVisible = errors.New("kubeweir cannot tell in which namespaces you may")

// Granting is what the RBAC objects of a cluster grant. It is immutable, comparable, and safe for concurrent use.
type Granting interface {
	// Namespaces are those in which u may do what a, which names none, says, in any order and maybe repeated;
	// themselves tells that a is about the Namespaces themselves, each of which is then named by its own name.
	// everywhere tells that it is all namespaces.
	Namespaces(u user.Info, a *Attributes, themselves bool) (names []string, everywhere bool)
	// Allow tells whether u may do what a says.
	Allow(u user.Info, a *Attributes) bool
}

// VisibleOptions say what visible namespaces are found by. Zero values stand for the defaults, where there are any.
type VisibleOptions struct {
	// Authorizer confirms. Required.
	Authorizer *Authorizer
	// Granting returns what is granted now, the same value as long as nothing has changed, and nil while that is not
	// known. Required.
	Granting func() Granting
	// All returns a number that is another one once there are other namespaces, and their names. Required.
	All func(ctx context.Context) (state uint64, names func() []string, err error)
	// Most bounds the names of namespaces that are remembered for all users (default 500,000); a user has a quarter.
	Most int
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

const (
	// visibleReviews is how many namespaces of one set are confirmed at a time, allVisibleReviews those of all sets. A
	// user's other requests have a place, see userReviews.
	visibleReviews    = userReviews / 2
	allVisibleReviews = 2 * userReviews
	// refusedAgain is when it is asked again for a namespace that the rules grant and the upstream refused: its
	// authorizer may be behind the rules.
	refusedAgain = settle / 2
)

// Visible finds the namespaces in which a user may do what they may not do in all. Those in which the cluster's RBAC
// objects grant it are the candidates, and each counts when the upstream has confirmed it for just that namespace. So
// nothing is ever wider than the sum of what the user may do in one namespace after the other, whatever authorizers the
// upstream has; what another one than RBAC grants is not found.
//
// A set is remembered. After a change of an RBAC object the upstream is asked about the namespaces that have come to be
// candidates, and the others are as good as before; after AllowedTTL it is asked about all. Visible is safe for concurrent
// use.
type Visible struct {
	opts    VisibleOptions
	sets    visibleSets
	flights flight.Group[visibleFlight, foundSet]
	slots   chan struct{}
	panics  *contain.Panics
}

// visibleFlight names calls that share their result: of one user, about one thing, by confirmations up to an age.
type visibleFlight struct {
	key decisionKey
	age time.Duration
}

// VisibleSet is the namespaces in which a user may do something. It is immutable.
type VisibleSet struct {
	// Decision tells how it was come by.
	Decision
	// Namespaces are those of the user.
	Namespaces *object.Namespaces

	owner      *Visible
	key        decisionKey
	user       *User
	attributes Attributes
	granting   Granting
	// state is that of all namespaces, if they were candidates.
	state uint64
	// confirmed is when the first confirmation was begun, on the decisions' clock, and tried when the upstream refused
	// some candidates; 0 if it refused none.
	confirmed, tried int64
}

// NewVisible returns what remembers no set yet.
func NewVisible(opts VisibleOptions) *Visible {
	setDefault(&opts.Most, defaults.VisibleNamespaces)
	v := &Visible{opts: opts, slots: make(chan struct{}, allVisibleReviews), panics: contain.New(opts.Registerer, nil)}
	v.sets.init(opts.Most)
	v.sets.watch(opts.Registerer)
	return v
}

// Of returns the namespaces in which u may do what a, a list or watch of all of them, says, and how many reviews were
// made for that; of what others waited for as well its part. An error may be ErrNotAsked.
func (v *Visible) Of(ctx context.Context, u *User, a Attributes) (s *VisibleSet, asked float64, err error) {
	return v.find(ctx, u, a, nil, v.opts.Authorizer.opts.AllowedTTL)
}

// find returns a set whose namespaces were confirmed within age, or are now; before is one of earlier, nil for none.
func (v *Visible) find(ctx context.Context, u *User, a Attributes, before *VisibleSet, age time.Duration) (s *VisibleSet, asked float64, err error) {
	key := keyOf(u, &a)
	known := func() *VisibleSet {
		if s := v.sets.get(key); s != nil {
			return s
		}
		return before
	}
	if s := known(); s != nil && v.counts(ctx, s, age) {
		return s, 0, nil
	}
	if mayNotAsk(ctx) {
		return nil, 0, ErrNotAsked
	}
	a = a.clone()
	key = keyOf(u, &a)
	found, by, err := v.flights.Do(ctx, visibleFlight{key, age}, func(ctx context.Context) (f foundSet, err error) {
		before := known()
		if before != nil && v.counts(ctx, before, age) { // of the round before this one
			return foundSet{before, 0}, nil
		}
		f.set = &VisibleSet{owner: v, key: key, user: u, attributes: a}
		if f.asked, err = v.derive(ctx, f.set, before, age); err == nil {
			v.sets.put(f.set)
		}
		return f, err
	})
	return found.set, found.asked * by.Part(), err
}

// foundSet is a set and the reviews that it took.
type foundSet struct {
	set   *VisibleSet
	asked float64
}

// counts reports whether nothing has to be asked to know that s is still right.
func (v *Visible) counts(ctx context.Context, s *VisibleSet, age time.Duration) bool {
	now := v.opts.Authorizer.decisions.now()
	if s.Offline || now-s.confirmed >= int64(age) || s.tried > 0 && now-s.tried >= int64(refusedAgain) || v.opts.Granting() != s.granting {
		return false
	}
	if s.state == 0 {
		return true
	}
	state, _, err := v.opts.All(ctx)
	return err == nil && state == s.state
}

// derive completes s, and returns how many reviews that took.
func (v *Visible) derive(ctx context.Context, s, before *VisibleSet, age time.Duration) (reviews float64, err error) {
	authorizer := v.opts.Authorizer
	s.Allowed, s.Generation, s.confirmed = true, authorizer.Generation(), authorizer.decisions.now()
	names, err := v.candidates(ctx, s)
	if err != nil {
		return 0, err
	}
	asked := make([]Decision, len(names))
	now := s.confirmed
	if before != nil && !before.Offline && now-before.confirmed < int64(age) {
		s.confirmed = before.confirmed
		for i, name := range names {
			asked[i].Allowed = before.Namespaces.Has(name)
		}
	}
	if err := v.confirm(ctx, s, names, asked); err != nil {
		return 0, err
	}
	visible := names[:0]
	for i, name := range names {
		if asked[i].Allowed {
			visible = append(visible, name)
		}
		s.Offline = s.Offline || asked[i].Offline
		reviews += asked[i].Asked
	}
	if len(visible) < len(asked) {
		s.tried = now
	}
	s.Namespaces = object.NewNamespaces(visible, s.themselves())
	return reviews, nil
}

// themselves reports whether it is the Namespaces themselves that are listed.
func (s *VisibleSet) themselves() bool {
	return s.attributes.Resource == "namespaces" && s.attributes.APIGroup == ""
}

// candidates are the namespaces that the rules grant.
func (v *Visible) candidates(ctx context.Context, s *VisibleSet) ([]string, error) {
	if s.granting = v.opts.Granting(); s.granting == nil {
		return nil, fmt.Errorf("%w: it does not hold the RBAC objects of the cluster", ErrNotVisible)
	}
	names, everywhere := s.granted()
	if everywhere {
		state, all, err := v.opts.All(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: it does not hold the namespaces of the cluster", ErrNotVisible)
		}
		s.state, names = state, all()
	}
	if only := s.only(); only != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != only })
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if most := v.sets.share() - setCost; len(names) > most {
		return nil, fmt.Errorf("%w: there are more than %d", ErrNotVisible, most)
	}
	return names, nil
}

// granted are the namespaces in which the rules grant all permissions: who loses one of them is no candidate any more, and
// needs no review for that.
func (s *VisibleSet) granted() (names []string, everywhere bool) {
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
func (s *VisibleSet) only() string {
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
// a list does not.
func (s *VisibleSet) permissions(name string) []Attributes {
	a := s.attributes
	a.Namespace = name
	if !s.themselves() {
		return []Attributes{a}
	}
	a.Name = name
	get := a
	get.Verb, get.FieldSelector, get.LabelSelector = "get", "", ""
	if a.Verb == "watch" {
		return []Attributes{get, a}
	}
	return []Attributes{get}
}

// confirm asks the upstream about the names that are not allowed yet.
func (v *Visible) confirm(ctx context.Context, s *VisibleSet, names []string, asked []Decision) error {
	reviews, together := errgroup.WithContext(ctx)
	reviews.SetLimit(visibleReviews)
	for i, name := range names {
		if asked[i].Allowed {
			continue
		}
		permissions := s.permissions(name)
		if d, ok := v.remembered(s.user, permissions); ok {
			asked[i] = d
			continue
		}
		if together.Err() != nil {
			break
		}
		reviews.Go(v.panics.Func("background", func() (err error) {
			select {
			case v.slots <- struct{}{}:
				defer func() { <-v.slots }()
			case <-together.Done():
				return context.Cause(together)
			}
			asked[i], err = v.review(together, s.user, permissions)
			return err
		}))
	}
	if err := reviews.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// remembered is what is known of permissions without asking.
func (v *Visible) remembered(u *User, permissions []Attributes) (d Decision, ok bool) {
	for _, a := range permissions {
		d, ok = v.opts.Authorizer.decisions.get(keyOf(u, &a))
		if !ok || !d.Allowed {
			return d, ok
		}
	}
	return d, true
}

// review asks for permissions, all of which are needed.
func (v *Visible) review(ctx context.Context, u *User, permissions []Attributes) (d Decision, err error) {
	for _, a := range permissions {
		offline, asked := d.Offline, d.Asked
		d, err = v.opts.Authorizer.Authorize(ctx, u, a)
		d.Asked += asked
		if err != nil || !d.Allowed {
			return d, err
		}
		d.Offline = d.Offline || offline
	}
	return d, nil
}

// Hold counts what a watch of the set takes; false if there is no room for that, and nothing to be released.
func (s *VisibleSet) Hold() bool { return s.owner.sets.hold(s) }

// Release is the end of Hold.
func (s *VisibleSet) Release() { s.owner.sets.release(s) }

// recheck finds out whether a watch of s, whose namespaces have to be confirmed each period, may go on.
func (s *VisibleSet) recheck(ctx context.Context, period time.Duration) (recheckResult, reason.WatchEnd) {
	now, _, err := s.owner.find(ctx, s.user, s.attributes, s, period)
	switch {
	case err != nil:
		return recheckUnknown, reason.Unconfirmed
	case now.Namespaces.ID() != s.Namespaces.ID(), s.owner.allowsAll(ctx, now):
		return recheckBad, reason.NamespacesChanged
	case now.Offline:
		return recheckOffline, reason.NotEnded
	}
	return recheckGood, reason.NotEnded
}

// allowsAll reports whether the user may now do in all namespaces what s is about. What the set says of the Namespaces
// themselves does not tell: to watch all of them takes no right to get one.
func (v *Visible) allowsAll(ctx context.Context, s *VisibleSet) bool {
	if !s.granting.Allow(s.user, &s.attributes) {
		return false
	}
	d, err := v.opts.Authorizer.Authorize(ctx, s.user, s.attributes)
	return err == nil && d.Allowed
}

// nextLook is when a watch of s is to be looked at again: where all namespaces were candidates, a new one is no change
// of a right that somebody is told of.
func (s *VisibleSet) nextLook(now time.Time, period time.Duration) time.Time {
	if s.state > 0 {
		period = tick
	}
	return now.Add(period)
}
