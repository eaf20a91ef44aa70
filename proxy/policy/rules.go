package policy

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

// rule is a compiled Rule. It is immutable.
type rule struct {
	users, groups, userAgents []glob
	resources                 []groupResource
	settings                  Settings
	budgets                   *RuleBudgets // nil without any
}

func newRules(list []Rule) (all []rule) {
	for i := range list {
		from := &list[i]
		r := rule{
			users: globs(from.Users), groups: globs(from.Groups), userAgents: globs(from.UserAgents),
			settings: from.Settings, budgets: newBudgets(i, from),
		}
		for _, name := range from.Resources {
			resource, group, _ := strings.Cut(name, ".")
			r.resources = append(r.resources, groupResource{group, resource}.canonical())
		}
		all = append(all, r)
	}
	return all
}

// matches reports whether the rule matches a request of u. If info is nil the request may be for any
// resource.
func (r *rule) matches(u user.Info, userAgent string, info *api.RequestInfo) bool {
	switch {
	case info != nil && len(r.resources) > 0 && !slices.Contains(r.resources, groupResource{info.APIGroup, info.Resource}.canonical()):
		return false
	case len(r.users) > 0 && !anyGlob(r.users, u.GetName()):
		return false
	case len(r.groups) > 0 && !slices.ContainsFunc(u.GetGroups(), func(g string) bool { return anyGlob(r.groups, g) }):
		return false
	}
	return len(r.userAgents) == 0 || anyGlob(r.userAgents, userAgent)
}

type groupResource struct{ group, resource string }

// canonical returns the resource whose rules apply to r, too, because the same objects can be read or
// written through r.
func (r groupResource) canonical() groupResource {
	switch r {
	case groupResource{"events.k8s.io", "events"}:
		return groupResource{"", "events"}
	case groupResource{"", "bindings"}: // the deprecated form of pods/binding
		return groupResource{"", "pods"}
	}
	return r
}

// glob is a pattern, split at each "*", which stands for any run of characters.
type glob []string

func globs(patterns []string) (all []glob) {
	for _, p := range patterns {
		all = append(all, strings.Split(p, "*"))
	}
	return all
}

func anyGlob(patterns []glob, s string) bool {
	return slices.ContainsFunc(patterns, func(g glob) bool { return g.matches(s) })
}

func (g glob) matches(s string) bool {
	if len(g) == 1 {
		return g[0] == s
	}
	s, ok := strings.CutPrefix(s, g[0])
	if !ok {
		return false
	}
	for _, part := range g[1 : len(g)-1] {
		if _, s, ok = strings.Cut(s, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(s, g[len(g)-1])
}
