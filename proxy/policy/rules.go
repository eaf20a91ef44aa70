package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

// Match matches a request when each of its non-empty lists has a match. Users,
// groups and user agents may hold "*" for any run of characters; resources are
// "pods" or "deployments.apps", and have their subresources; events of either group are the
// same objects, and bindings are pods'.
type Match struct{ Users, Groups, UserAgents, Resources []string }

// Rule says what holds for the requests that it matches.
type Rule struct {
	Match
	// Says has the settings that the rule decides.
	Says Settings
}

// Settings are what rules may decide of a request. A field that is zero says nothing.
type Settings struct {
	// Mode is how a most-recent read is answered.
	Mode Mode
	// Offline says whether a read is answered by what the upstream said last.
	Offline Choice
	// SelfReviews says whether a question of the client about itself is answered with what
	// the upstream answered lately.
	SelfReviews Choice
	// ReadOnly refuses whatever is not surely a read.
	ReadOnly Choice
	// Coalesce and WatchBytesPerSecond are the pace of a watch, see cache.Pace. Below 0 its
	// events do not wait, whatever their rate is.
	Coalesce            time.Duration
	WatchBytesPerSecond int64
	// VisibleLists narrows lists and watches of all namespaces to those that the user may see,
	// instead of refusing them.
	VisibleLists Choice
	// Redacted shows objects without their secrets, and refuses what cannot be shown so.
	Redacted Choice
	// DropManagedFields leaves metadata.managedFields out of what the cache answers.
	DropManagedFields Choice
	// UpstreamRequestsPerSecond and UpstreamBytesPerSecond are what each sender may cause
	// upstream; OverBudget says what becomes of a request beyond. They, and Block, which
	// refuses all, hold for who sends a request, as whomever they act.
	UpstreamRequestsPerSecond, UpstreamBytesPerSecond int64
	OverBudget                                        OverBudget
	Block                                             Choice

	requests, bytes *Budget // of a rule that was compiled
}

func choiceOf(yes bool) Choice {
	if yes {
		return Yes
	}
	return No
}

// Choice says yes, no or nothing.
type Choice uint8

// The choices.
const (
	Unsaid Choice = iota
	Yes
	No
)

// rules decide what holds for a request: of each setting, the first rule that matches and
// has it, else what holds for all. They must not change while in use.
type rules struct {
	list []compiledRule
	all  Settings
}

// compiledRule is a Rule with its patterns taken apart.
type compiledRule struct {
	users, groups, userAgents []glob
	resources                 []groupResource
	says                      Settings
	budgets                   *RuleBudgets // nil without any
}

type groupResource struct{ group, resource string }

// canonical is the resource whose rules are those of r, too: objects may be seen as, or
// changed by, another resource.
func (r groupResource) canonical() groupResource {
	switch r {
	case groupResource{"events.k8s.io", "events"}:
		return groupResource{"", "events"}
	case groupResource{"", "bindings"}: // the old way to pods/binding
		return groupResource{"", "pods"}
	}
	return r
}

func newRules(list []Rule, all Settings) rules {
	r := rules{all: all}
	for i := range list {
		from := &list[i]
		c := compiledRule{users: globs(from.Users), groups: globs(from.Groups), userAgents: globs(from.UserAgents), says: from.Says}
		for _, name := range from.Resources {
			resource, group, _ := strings.Cut(name, ".")
			c.resources = append(c.resources, groupResource{group, resource}.canonical())
		}
		if c.budgets = newBudgets(i, from); c.budgets != nil {
			c.says.requests, c.says.bytes = c.budgets.Requests, c.budgets.Bytes
		}
		r.list = append(r.list, c)
	}
	return r
}

// ruleName is the path of a rule in the configuration.
func ruleName(i int) string { return fmt.Sprintf("rules[%d]", i) }

// any reports whether what is asked may hold for some request.
func (r *rules) any(is func(*Settings) bool) bool {
	return is(&r.all) || slices.ContainsFunc(r.list, func(c compiledRule) bool { return is(&c.says) })
}

// mayRestrict reports whether a setting restricts u in something, whatever the resource is.
func (r *rules) mayRestrict(u user.Info, userAgent string, setting func(*Settings) Choice) bool {
	for i := range r.list {
		switch c := &r.list[i]; {
		case setting(&c.says) == Unsaid || !c.matchesSender(u, userAgent):
		case setting(&c.says) == Yes:
			return true
		case len(c.resources) == 0:
			return false
		}
	}
	return false
}

// decideSender is decide for what holds for a sender. A request whose info is nil may be one
// of any resource.
func (r *rules) decideSender(u user.Info, userAgent string, info *api.RequestInfo) (s Settings) {
	for i := range r.list {
		if c := &r.list[i]; info != nil && c.matches(u, userAgent, info) || info == nil && c.matchesSender(u, userAgent) {
			s.complete(&c.says)
		}
	}
	return s
}

// decide returns what holds for a request of u.
func (r *rules) decide(u user.Info, userAgent string, info *api.RequestInfo) Settings {
	if len(r.list) == 0 {
		return r.all
	}
	var s Settings
	for i := range r.list {
		if c := &r.list[i]; c.matches(u, userAgent, info) {
			s.complete(&c.says)
		}
	}
	s.complete(&r.all)
	return s
}

// complete takes from what s does not say.
func (s *Settings) complete(from *Settings) {
	if s.Mode == "" {
		s.Mode = from.Mode
	}
	if s.Offline == Unsaid {
		s.Offline = from.Offline
	}
	if s.SelfReviews == Unsaid {
		s.SelfReviews = from.SelfReviews
	}
	if s.ReadOnly == Unsaid {
		s.ReadOnly = from.ReadOnly
	}
	if s.requests == nil {
		s.requests = from.requests
	}
	if s.bytes == nil {
		s.bytes = from.bytes
	}
	if s.OverBudget == "" {
		s.OverBudget = from.OverBudget
	}
	if s.Block == Unsaid {
		s.Block = from.Block
	}
	if s.Coalesce == 0 {
		s.Coalesce = from.Coalesce
	}
	if s.WatchBytesPerSecond == 0 {
		s.WatchBytesPerSecond = from.WatchBytesPerSecond
	}
	if s.Redacted == Unsaid {
		s.Redacted = from.Redacted
	}
	if s.VisibleLists == Unsaid {
		s.VisibleLists = from.VisibleLists
	}
	if s.DropManagedFields == Unsaid {
		s.DropManagedFields = from.DropManagedFields
	}
}

func (c *compiledRule) matches(u user.Info, userAgent string, info *api.RequestInfo) bool {
	if len(c.resources) > 0 && !slices.Contains(c.resources, groupResource{info.APIGroup, info.Resource}.canonical()) {
		return false
	}
	return c.matchesSender(u, userAgent)
}

func (c *compiledRule) matchesSender(u user.Info, userAgent string) bool {
	if len(c.users) > 0 && !anyGlob(c.users, u.GetName()) {
		return false
	}
	if len(c.groups) > 0 && !slices.ContainsFunc(u.GetGroups(), func(g string) bool { return anyGlob(c.groups, g) }) {
		return false
	}
	return len(c.userAgents) == 0 || anyGlob(c.userAgents, userAgent)
}

// glob is a pattern in which "*" stands for any run of characters: what is between them.
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
	if !strings.HasPrefix(s, g[0]) {
		return false
	}
	s = s[len(g[0]):]
	last := g[len(g)-1]
	for _, part := range g[1 : len(g)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}
