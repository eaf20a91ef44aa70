package rbac

import (
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Namespaces implements visible.Grants.
func (r *Rules) Namespaces(u user.Info, a *authz.Attributes, themselves bool) (names []string, everywhere bool) {
	s := search{a: *a, themselves: themselves, allows: make(map[*role]bool)}
	for _, grants := range r.of(u) {
		s.through(grants)
	}
	return s.names, s.everywhere
}

// search looks through grants for namespaces.
type search struct {
	a          authz.Attributes
	themselves bool
	allows     map[*role]bool // the result for roles, which is the same in all namespaces
	names      []string
	everywhere bool
}

func (s *search) through(grants []grant) {
	for i := range grants {
		g := &grants[i]
		switch {
		case s.everywhere:
			return
		case g.namespace != "":
			if s.allowsIn(g) {
				s.names = append(s.names, g.namespace)
			}
		case s.themselves:
			s.addNamed(g.role)
		default:
			s.everywhere = g.role.allows(&s.a)
		}
	}
}

// allowsIn reports whether the grant allows the action in its own namespace.
func (s *search) allowsIn(g *grant) bool {
	if s.themselves {
		s.a.Namespace, s.a.Name = g.namespace, g.namespace
		return g.role.allows(&s.a)
	}
	allows, known := s.allows[g.role]
	if !known {
		allows = g.role.allows(&s.a)
		s.allows[g.role] = allows
	}
	return allows
}

// addNamed adds the Namespaces that a role of the cluster names.
func (s *search) addNamed(r *role) {
	for i := range r.rules {
		rule := &r.rules[i]
		switch {
		case !ruleAllowsSome(rule, &s.a):
		case len(rule.ResourceNames) == 0:
			s.everywhere = true
		default:
			s.names = append(s.names, rule.ResourceNames...)
		}
	}
}
