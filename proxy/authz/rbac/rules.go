package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Rules are the RBAC objects of a cluster by the users and groups that they grant something to. They
// are immutable and safe for concurrent use.
type Rules struct {
	users, groups map[string][]grant
}

// grant is the effect of a binding: a role in a namespace, or everywhere if namespace is "".
type grant struct {
	namespace string
	*role
}

type role struct{ rules []rbacv1.PolicyRule }

// Objects are all RBAC objects of a cluster.
type Objects struct {
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
}

// New returns the rules of the objects. A binding whose role is missing grants nothing.
func New(o Objects) *Rules {
	type roleKey struct{ namespace, name string }
	roles := make(map[roleKey]*role)
	for _, r := range o.Roles {
		roles[roleKey{r.Namespace, r.Name}] = &role{r.Rules}
	}
	for _, r := range o.ClusterRoles {
		roles[roleKey{"", r.Name}] = &role{r.Rules}
	}
	r := &Rules{users: make(map[string][]grant), groups: make(map[string][]grant)}
	bind := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		key := roleKey{"", ref.Name}
		switch {
		case ref.Kind == "Role" && namespace != "":
			key.namespace = namespace
		case ref.Kind != "ClusterRole":
			return
		}
		if role := roles[key]; role != nil && len(role.rules) > 0 {
			r.add(subjects, grant{namespace, role})
		}
	}
	for _, b := range o.ClusterRoleBindings {
		bind("", b.RoleRef, b.Subjects)
	}
	for _, b := range o.RoleBindings {
		if b.Namespace != "" {
			bind(b.Namespace, b.RoleRef, b.Subjects)
		}
	}
	return r
}

func (r *Rules) add(subjects []rbacv1.Subject, g grant) {
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			r.users[s.Name] = append(r.users[s.Name], g)
		case rbacv1.GroupKind:
			r.groups[s.Name] = append(r.groups[s.Name], g)
		case rbacv1.ServiceAccountKind:
			namespace := s.Namespace
			if namespace == "" {
				namespace = g.namespace
			}
			if namespace != "" {
				name := serviceaccount.MakeUsername(namespace, s.Name)
				r.users[name] = append(r.users[name], g)
			}
		}
	}
}

// of returns the grants of a user and of its groups.
func (r *Rules) of(u user.Info) [][]grant {
	all := [][]grant{r.users[u.GetName()]}
	for _, group := range u.GetGroups() {
		all = append(all, r.groups[group])
	}
	return all
}

// Allow reports whether the rules allow u to do a.
func (r *Rules) Allow(u user.Info, a *authz.Attributes) bool {
	return slices.ContainsFunc(r.of(u), func(grants []grant) bool {
		return slices.ContainsFunc(grants, func(g grant) bool {
			return (g.namespace == "" || g.namespace == a.Namespace) && g.role.allows(a)
		})
	})
}

func (r *role) allows(a *authz.Attributes) bool {
	return slices.ContainsFunc(r.rules, func(rule rbacv1.PolicyRule) bool { return ruleAllows(&rule, a) })
}

func ruleAllows(rule *rbacv1.PolicyRule, a *authz.Attributes) bool {
	if !a.ResourceRequest {
		return matches(rule.Verbs, rbacv1.VerbAll, a.Verb) &&
			slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return pathMatches(url, a.Path) })
	}
	return ruleAllowsSome(rule, a) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

// ruleAllowsSome reports whether the rule allows a for an object of some name.
func ruleAllowsSome(rule *rbacv1.PolicyRule, a *authz.Attributes) bool {
	return matches(rule.Verbs, rbacv1.VerbAll, a.Verb) && matches(rule.APIGroups, rbacv1.APIGroupAll, a.APIGroup) &&
		slices.ContainsFunc(rule.Resources, func(resource string) bool { return resourceMatches(resource, a) })
}

func matches(list []string, all, one string) bool {
	return slices.Contains(list, all) || slices.Contains(list, one)
}

// resourceMatches accepts "*", "pods", "pods/log" and "*/scale".
func resourceMatches(resource string, a *authz.Attributes) bool {
	switch {
	case resource == rbacv1.ResourceAll:
		return true
	case a.Subresource == "":
		return resource == a.Resource
	}
	return resource == a.Resource+"/"+a.Subresource || resource == "*/"+a.Subresource
}

func pathMatches(pattern, path string) bool {
	if before, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, strings.TrimRight(before, "*"))
	}
	return pattern == path
}
