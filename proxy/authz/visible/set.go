package visible

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Grants are what the RBAC objects of a cluster grant. They are immutable, comparable, and safe for
// concurrent use.
type Grants interface {
	// Namespaces returns the namespaces in which u may do a, which names none, in any order and with
	// duplicates. everywhere is true if these are all namespaces. themselves is true if a is about
	// Namespaces, each of which then has its own name as its namespace.
	Namespaces(u user.Info, a *authz.Attributes, themselves bool) (names []string, everywhere bool)
	// Allow reports whether u may do a.
	Allow(u user.Info, a *authz.Attributes) bool
}

// Set is the namespaces in which a user may do something. It is immutable, except for the times at
// which its namespaces were confirmed.
type Set struct {
	// Decision describes how the set was found: from a review, the cache, or offline.
	authz.Decision
	// Namespaces are the namespaces that the user may see.
	Namespaces *object.Namespaces

	finder     *Finder
	key        authz.Key
	user       *authn.User
	attributes authz.Attributes
	grants     Grants
	// state identifies the list of all namespaces if every one of them was a candidate, and is 0
	// otherwise.
	state uint64
	// base is the set of the same without selectors; nil without selectors, or if they select one
	// namespace.
	base *Set
	// candidates are the granted namespaces in order: those confirmed and those denied.
	candidates        []string
	confirmed, denied *reviewed
	// unsettled is true if some were denied before a change of RBAC objects had settled.
	unsettled bool
}

// Key stands for the user and what the set is about.
func (s *Set) Key() authz.Key { return s.key }

// Rights are the rights by which a set has its namespaces.
type Rights struct {
	permission authz.Key
	namespaces string
}

// Rights returns the rights of the set. Lost is the same for all sets with the same rights.
func (s *Set) Rights() Rights {
	a := s.attributes
	a.FieldSelector, a.LabelSelector = "", ""
	return Rights{permission: authz.KeyOf(s.user, &a), namespaces: s.Namespaces.ID()}
}

// conclude sets the namespaces of s by what is known about its candidates.
func (s *Set) conclude(before *Set, known []knownReview, settled bool) {
	var confirmed, denied reviewed
	for i, name := range s.candidates {
		k := &known[i]
		s.Offline = s.Offline || k.offline
		if k.allowed {
			confirmed.add(name, k.at)
		} else {
			denied.add(name, k.at)
			s.unsettled = s.unsettled || k.reviewed && !settled || !k.reviewed && before != nil && before.unsettled
		}
	}
	s.confirmed, s.denied = &confirmed, &denied
	if before != nil && !s.Offline && !before.Offline && before.denied.equal(s.denied) {
		before.denied.renew(s.denied)
		s.denied = before.denied
	}
	switch {
	case s.base != nil && s.base.confirmed.equal(s.confirmed):
		s.Namespaces = s.base.Namespaces
		if !s.Offline && !s.base.Offline {
			s.confirmed = s.base.confirmed
		}
	case before != nil && before.confirmed.equal(s.confirmed):
		s.Namespaces = before.Namespaces
		// Namespaces that are confirmed for selectors are confirmed for those only, so their times
		// must not go into the times of a base.
		ownTimes := before.base == nil || before.base.confirmed != before.confirmed
		if !s.Offline && !before.Offline && ownTimes {
			before.confirmed.renew(s.confirmed)
			s.confirmed = before.confirmed
		}
	default:
		s.Namespaces = object.NewNamespaces(confirmed.names, s.themselves())
	}
	if len(denied.names) == 0 {
		s.candidates = s.confirmed.names
	}
}

// themselves reports whether Namespaces are listed.
func (s *Set) themselves() bool {
	return s.attributes.Resource == "namespaces" && s.attributes.APIGroup == ""
}

// withoutSelectors returns what s is about, not narrowed by the contents or names of objects.
func (s *Set) withoutSelectors() authz.Attributes {
	a := s.attributes
	a.FieldSelector, a.LabelSelector = "", ""
	if !s.themselves() {
		a.Name = ""
	}
	return a
}

// sameRights returns the base if it has the same candidates, because the RBAC rules depend neither
// on names nor on selectors.
func (s *Set) sameRights() *Set {
	if s.attributes.Name != "" {
		return nil
	}
	return s.base
}

// granted returns the namespaces in which the RBAC objects grant all permissions. A user who loses
// one of them loses the namespace without a review.
func (s *Set) granted() (names []string, everywhere bool) {
	everywhere = true
	for _, a := range s.permissions("") {
		some, all := s.grants.Namespaces(s.user, &a, s.themselves())
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

// only returns the one namespace that the field selector leaves, "" if it leaves more.
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

// permissions returns what the user needs to see a namespace: the permissions that kube-apiserver
// requires if only that one is listed or watched. A Namespace itself is listed by getting it, and
// watching it takes both, so that no watch shows what a list does not. Neither is authorized with
// selectors.
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

// selected returns the names that the field selector leaves, in order and without duplicates.
func (s *Set) selected(names []string) []string {
	if only := s.only(); only != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != only })
	}
	slices.Sort(names)
	return slices.Compact(names)
}
