package visible

import (
	"slices"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Inspection is what is known of the namespaces in which a user may do something.
type Inspection struct {
	// Set is what was found last, nil if nothing is remembered. Current tells that nobody would be asked again to use it,
	// as long as there are no other namespaces.
	Set     *Set
	Current bool
	// Known tells that the cluster's RBAC objects are held; Candidates are then the namespaces that they grant, unless it is
	// Everywhere.
	Known, Everywhere bool
	Candidates        int
}

// Look tells what is known of the set that Of would return. Nobody is asked, and nothing counts as used.
func (v *Finder) Look(u *authn.User, a authz.Attributes) (l Inspection) {
	key := authz.KeyOf(u, &a)
	l.Set = v.sets.look(key)
	s := &Set{owner: v, key: key, user: u, attributes: a, granting: v.opts.Grants()}
	if l.Known = s.granting != nil; l.Known {
		names, everywhere := s.granted()
		if only := s.only(); only != "" {
			names = slices.DeleteFunc(names, func(name string) bool { return name != only })
		}
		slices.Sort(names)
		l.Candidates, l.Everywhere = len(slices.Compact(names)), everywhere
	}
	if set := l.Set; set != nil {
		t := v.termsOf(&a)
		t.allowed = v.atLeast(t.allowed, len(set.candidates))
		l.Current = set.granting == s.granting && v.fresh(set, t)
	}
	return l
}

// look is get that does not count as a use.
func (t *visibleSets) look(key authz.Key) *Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.mu.sets[key]; kept != nil {
		return kept.set
	}
	return nil
}
