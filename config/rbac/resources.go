package rbac

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	// Default selects all built-in resources of Kubernetes except Secrets.
	Default = "default"
	// Everything selects all resources of all groups, including Secrets.
	Everything = "*"
)

// Resources are the resources to cache: plural names by API group, or "*".
type Resources struct{ byGroup map[string]map[string]bool }

// ParseResources parses names as `kubeweir rbac --resources` takes them: "pods",
// "deployments.apps", "*.cert-manager.io" for a whole group, Default and Everything. Without names
// it returns Default.
func ParseResources(names []string) (*Resources, error) {
	r := &Resources{byGroup: make(map[string]map[string]bool)}
	if len(names) == 0 {
		names = []string{Default}
	}
	for _, name := range names {
		if err := r.parse(name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// resourceName matches a plural with or without a group, or "*" with a group.
var resourceName = regexp.MustCompile(`^(\*\.|[a-z0-9]([-a-z0-9]*[a-z0-9])?\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// version matches the version that kubectl allows between resource and group.
var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?(\.|$)`)

func (r *Resources) parse(name string) error {
	resource, group, grouped := strings.Cut(name, ".")
	switch {
	case name == Default:
		r.addBuiltin()
		return nil
	case name == Everything:
		r.add(Everything, Everything)
		return nil
	case strings.Contains(name, "/"):
		return fmt.Errorf("%q: give the plural name with its group, such as pods or deployments.apps, without version or subresource", name)
	case !resourceName.MatchString(name):
		return fmt.Errorf("%q is not a resource; give plural names such as pods, deployments.apps or *.cert-manager.io, %s, or %s for everything", name, Default, Everything)
	case grouped && version.MatchString(group):
		return fmt.Errorf("%q names a version, which rights know nothing of; write %s", name, withGroup(resource, version.ReplaceAllString(group, "")))
	case resource == Everything:
		r.addGroup(group)
		return nil
	}
	known, builtinGroup := builtin()[group]
	if builtinGroup && !slices.Contains(known, resource) {
		return unknownResource(name, resource, group)
	}
	r.add(group, resource)
	return nil
}

// unknownResource returns the error for a name that no built-in group has.
func unknownResource(name, resource, group string) error {
	var similar []string
	for _, g := range slices.Sorted(maps.Keys(builtin())) {
		for _, plural := range builtin()[g] {
			if plural == resource || plural == resource+"s" || plural == resource+"es" {
				similar = append(similar, withGroup(plural, g))
			}
		}
	}
	where := "the core group has no such resource that can be watched"
	if group != "" {
		where = "the group " + group + " has no such resource that can be watched"
	}
	if len(similar) > 0 {
		return fmt.Errorf("%q: %s; did you mean %s?", name, where, strings.Join(similar, " or "))
	}
	return fmt.Errorf("%q: %s; those of other groups are written with the group, such as certificates.cert-manager.io", name, where)
}

func withGroup(resource, group string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}

func (r *Resources) add(group, resource string) {
	if r.byGroup[group] == nil {
		r.byGroup[group] = make(map[string]bool)
	}
	r.byGroup[group][resource] = true
}

func (r *Resources) addGroup(group string) { r.add(group, Everything) }

func (r *Resources) addBuiltin() {
	for group, resources := range builtin() {
		for _, resource := range resources {
			if group != "" || resource != "secrets" {
				r.add(group, resource)
			}
		}
	}
}

// covers reports whether r contains all resources of a group.
func (r *Resources) covers(group string) bool {
	return r.byGroup[Everything][Everything] || r.byGroup[group][Everything]
}

func (r *Resources) has(group, resource string) bool {
	return r.covers(group) || r.byGroup[group][resource]
}

// Secrets reports whether r contains Secrets.
func (r *Resources) Secrets() bool { return r.has("", "secrets") }

// rules returns a rule for each group, or one rule for everything, without the resources of others.
func (r *Resources) rules(others followed) (rules []Rule) {
	if r.covers(Everything) {
		return []Rule{{policy(readVerbs(), Everything, Everything), []string{"All resources are cached, including Secrets, and those that the gateway itself needs."}}}
	}
	for _, group := range slices.Sorted(maps.Keys(r.byGroup)) {
		names := []string{Everything}
		if !r.covers(group) {
			names = slices.DeleteFunc(slices.Sorted(maps.Keys(r.byGroup[group])), func(name string) bool { return others.has(group, name) })
		}
		if len(names) == 0 {
			continue
		}
		rule := Rule{PolicyRule: policy(readVerbs(), group, names...)}
		if len(rules) == 0 {
			rule.For = []string{
				"Cached resources. Requests for other resources are forwarded as their client.",
			}
		}
		if group == "" && r.Secrets() {
			rule.For = append(rule.For, "Secrets are in the gateway's memory, and whoever has its token can read all of them.")
		}
		rules = append(rules, rule)
	}
	return rules
}
