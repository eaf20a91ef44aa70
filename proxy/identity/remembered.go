package identity

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// This file answers questions from memory: for those who look at what a process knows.

// Remembered returns a user of that name who was found good of late, with the groups that
// the credential gave; nil if there is none. Nobody is asked.
func (a *Authenticator) Remembered(name string) (found *User) {
	if a.tokens != nil {
		a.tokens.answers.search(func(answer tokenAnswer) bool {
			if answer.user == nil || answer.user.GetName() != name {
				return false
			}
			found = answer.user
			return true
		})
	}
	for _, v := range a.verifiers() {
		v.verified.search(func(c verifiedCert) bool {
			if found != nil || c.identity == nil || c.identity.User.GetName() != name {
				return found != nil
			}
			found = c.identity.User
			return true
		})
	}
	return found
}

func (a *Authenticator) verifiers() (list []*verifier) {
	if a.clientCerts != nil {
		list = append(list, a.clientCerts)
	}
	if a.frontProxy != nil {
		list = append(list, a.frontProxy.verifier)
	}
	return list
}

// Remembered returns the decision about u and attributes if it is in memory, or can be made
// within this process. Nothing is sent to the upstream, and nothing counted.
func (a *Authorizer) Remembered(ctx context.Context, u user.Info, attributes Attributes) (d Decision, ok bool) {
	who := NewUser(u)
	switch {
	case who.gateway:
		return Decision{Allowed: true}, true
	case a.opts.Decider != nil:
		allowed, reason, err := a.opts.Decider.Decide(ctx, who, attributes)
		return Decision{Allowed: allowed, Reason: reason}, err == nil
	}
	return a.decisions.get(keyOf(who, &attributes))
}

// VisibleLook is what is known of the namespaces in which a user may do something.
type VisibleLook struct {
	// Set is what was found last, nil if nothing is remembered. Current tells that nobody would be asked again to use it,
	// as long as there are no other namespaces.
	Set     *VisibleSet
	Current bool
	// Known tells that the cluster's RBAC objects are held; Candidates are then the namespaces that they grant, unless it is
	// Everywhere.
	Known, Everywhere bool
	Candidates        int
}

// Look tells what is known of the set that Of would return. Nobody is asked, and nothing counts as used.
func (v *Visible) Look(u *User, a Attributes) (l VisibleLook) {
	key := keyOf(u, &a)
	l.Set = v.sets.look(key)
	s := &VisibleSet{owner: v, key: key, user: u, attributes: a, granting: v.opts.Granting()}
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
func (t *visibleSets) look(key decisionKey) *VisibleSet {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept := t.mu.sets[key]; kept != nil {
		return kept.set
	}
	return nil
}
