package fairness

import (
	"slices"
	"sort"
	"strings"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/apihelpers"

	"github.com/kubeweir/kubeweir/internal/api"
)

// configuration is an immutable state of the flow schemas in use, in the order in which they are
// tried. The last one is the catch-all.
type configuration struct {
	version uint64
	schemas []flowSchema
}

// flowSchema is a FlowSchema with its priority level.
type flowSchema struct {
	uid, levelUID string
	load          *load
	rules         []rule
}

// Classify returns the UIDs of the flow schema and the priority level of a request of u, and whether
// the level has no free seat. A UID is empty if the object does not exist, as while the server starts.
func (c *Controller) Classify(u user.Info, r *api.RequestInfo) (schema, level string, full bool) {
	now := c.current.Load()
	if now == nil || now.version != c.version.Load() {
		now = c.read()
	}
	name, groups := u.GetName(), u.GetGroups()
	last := len(now.schemas) - 1
	for i := range now.schemas {
		if s := &now.schemas[i]; i == last || s.matches(name, groups, r) {
			return s.uid, s.levelUID, s.load.isFull()
		}
	}
	return "", "", false // unreachable: there is a catch-all
}

// read reads the configuration from the listers, as configController.digestConfigObjects does.
func (c *Controller) read() *configuration {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Before the listers: a change after this makes the next request read again.
	version := c.version.Load()
	if now := c.current.Load(); now != nil && now.version == version {
		return now
	}
	// Listers of informers do not fail.
	levels, _ := c.levels.List(labels.Everything())
	listed, _ := c.schemas.List(labels.Everything())
	for name := range c.loads {
		if !slices.ContainsFunc(levels, func(l *flowcontrol.PriorityLevelConfiguration) bool { return l.Name == name }) && !isMandatory(name) {
			delete(c.loads, name) // until it is configured again
		}
	}
	uids := make(map[string]string, len(levels))
	for _, level := range levels {
		if c.loads[level.Name] != nil { // otherwise the controller does not know it yet, or ignores it
			uids[level.Name] = string(level.UID)
		}
	}
	inUse := make(apihelpers.FlowSchemaSequence, 0, len(listed)+2)
	for _, s := range listed {
		if _, exists := uids[s.Spec.PriorityLevelConfiguration.Name]; exists {
			inUse = append(inUse, s)
		}
	}
	sort.Sort(inUse)
	has := func(name string) bool {
		return slices.ContainsFunc(inUse, func(s *flowcontrol.FlowSchema) bool { return s.Name == name })
	}
	if !has(flowcontrol.FlowSchemaNameExempt) {
		inUse = slices.Insert(inUse, 0, bootstrap.MandatoryFlowSchemaExempt)
	}
	if !has(flowcontrol.FlowSchemaNameCatchAll) {
		inUse = append(inUse, bootstrap.MandatoryFlowSchemaCatchAll)
	}
	now := &configuration{version: version, schemas: make([]flowSchema, 0, len(inUse))}
	for _, s := range inUse {
		level := s.Spec.PriorityLevelConfiguration.Name
		now.schemas = append(now.schemas, flowSchema{uid: string(s.UID), levelUID: uids[level], load: c.loads[level], rules: rulesOf(s)})
	}
	c.current.Store(now)
	return now
}

// isMandatory reports whether a priority level exists without an object.
func isMandatory(level string) bool {
	return level == flowcontrol.PriorityLevelConfigurationNameExempt || level == flowcontrol.PriorityLevelConfigurationNameCatchAll
}

// rule is a PolicyRulesWithSubjects.
type rule struct {
	everyone bool
	// users and groups are names. accounts are the beginnings of the names of all service accounts of
	// a namespace.
	users, groups, accounts []string
	resources               []flowcontrol.ResourcePolicyRule
	paths                   []flowcontrol.NonResourcePolicyRule
}

const accountPrefix = "system:serviceaccount:"

func rulesOf(s *flowcontrol.FlowSchema) (rules []rule) {
	for _, from := range s.Spec.Rules {
		r := rule{resources: from.ResourceRules, paths: from.NonResourceRules}
		for _, subject := range from.Subjects {
			switch {
			case subject.Kind == flowcontrol.SubjectKindUser && subject.User != nil:
				r.everyone = r.everyone || subject.User.Name == flowcontrol.NameAll
				r.users = append(r.users, subject.User.Name)
			case subject.Kind == flowcontrol.SubjectKindGroup && subject.Group != nil:
				r.everyone = r.everyone || subject.Group.Name == flowcontrol.NameAll
				r.groups = append(r.groups, subject.Group.Name)
			case subject.Kind == flowcontrol.SubjectKindServiceAccount && subject.ServiceAccount != nil:
				prefix := accountPrefix + subject.ServiceAccount.Namespace + ":"
				if subject.ServiceAccount.Name == flowcontrol.NameAll {
					r.accounts = append(r.accounts, prefix)
				} else {
					r.users = append(r.users, prefix+subject.ServiceAccount.Name)
				}
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// matches is the library's matchesFlowSchema.
func (s *flowSchema) matches(name string, groups []string, r *api.RequestInfo) bool {
	for i := range s.rules {
		if rule := &s.rules[i]; rule.isFor(name, groups) && rule.covers(r) {
			return true
		}
	}
	return false
}

// isFor reports whether the user is one of the subjects.
func (r *rule) isFor(name string, groups []string) bool {
	if r.everyone || slices.Contains(r.users, name) {
		return true
	}
	for _, wanted := range r.groups {
		if slices.Contains(groups, wanted) {
			return true
		}
	}
	for _, prefix := range r.accounts {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// covers reports whether the request is one of those that the rule is about.
func (r *rule) covers(info *api.RequestInfo) bool {
	if info.IsResourceRequest {
		for i := range r.resources {
			if coversResource(&r.resources[i], info) {
				return true
			}
		}
		return false
	}
	for i := range r.paths {
		if p := &r.paths[i]; has(p.Verbs, info.Verb) && coversPath(p.NonResourceURLs, info.Path) {
			return true
		}
	}
	return false
}

func coversResource(r *flowcontrol.ResourcePolicyRule, info *api.RequestInfo) bool {
	if !has(r.Verbs, info.Verb) || !hasResource(r.Resources, info.Resource, info.Subresource) || !has(r.APIGroups, info.APIGroup) {
		return false
	}
	if info.Namespace == "" {
		return r.ClusterScope
	}
	return has(r.Namespaces, info.Namespace)
}

// every is the wildcard of verbs, groups, resources, namespaces and paths.
const every = "*"

// has reports whether a list has a value, or consists of the wildcard.
func has(list []string, value string) bool {
	return len(list) == 1 && list[0] == every || slices.Contains(list, value)
}

// hasResource is has for RESOURCE or RESOURCE/SUBRESOURCE.
func hasResource(list []string, resource, subresource string) bool {
	if subresource == "" {
		return has(list, resource)
	}
	if len(list) == 1 && list[0] == every {
		return true
	}
	for _, name := range list {
		if rest, ok := strings.CutPrefix(name, resource); ok && len(rest) == len(subresource)+1 && rest[0] == '/' && rest[1:] == subresource {
			return true
		}
	}
	return false
}

// coversPath reports whether a path is one of the URLs, or below one of them.
func coversPath(urls []string, path string) bool {
	for _, url := range urls {
		if url == every || url == path {
			return true
		}
		below := strings.TrimSuffix(strings.TrimSuffix(url, "*"), "/")
		if len(path) > len(below) && path[len(below)] == '/' && strings.HasPrefix(path, below) {
			return true
		}
	}
	return false
}
