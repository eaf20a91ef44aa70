package policy

import (
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Compiled is a compiled Policy. It is immutable: a request keeps the one that it began with.
type Compiled struct {
	Policy
	rules    []rule
	defaults Settings
	// restricts is set if a rule may reject some request, redacts if some response may be redacted.
	restricts, redacts bool
	// HasBudgets is set if a rule has a budget or blocks clients.
	HasBudgets bool
}

// Compile compiles p. Budgets that are equal to one of before, which may be nil, keep what their
// users have spent.
func Compile(p Policy, before *Compiled) *Compiled {
	c := &Compiled{Policy: p, rules: newRules(p.Rules), defaults: Settings{
		Mode: p.Consistency.Default, Offline: choiceOf(p.Offline.Allow), SelfReviews: choiceOf(p.RememberSelfReviews),
		Coalesce: p.Pace.Coalesce, WatchBytesPerSecond: p.Pace.BytesPerSecond,
	}}
	keepBudgets(c.Budgets(), before.Budgets())
	c.redacts = c.Any(func(s *Settings) bool { return s.Redacted == Yes })
	c.restricts = c.redacts || c.Any(func(s *Settings) bool { return s.ReadOnly == Yes })
	c.HasBudgets = len(c.Budgets()) > 0 || c.Any(func(s *Settings) bool { return s.Block == Yes })
	return c
}

// Decide returns the settings of a request of u. info must not be nil.
func (c *Compiled) Decide(u user.Info, userAgent string, info *api.RequestInfo) Settings {
	if len(c.rules) == 0 {
		return c.defaults
	}
	var s Settings
	for i := range c.rules {
		if r := &c.rules[i]; r.matches(u, userAgent, info) {
			s.complete(&r.settings)
		}
	}
	s.complete(&c.defaults)
	return s
}

// Any reports whether is may be true of the settings of some request.
func (c *Compiled) Any(is func(*Settings) bool) bool {
	return is(&c.defaults) || slices.ContainsFunc(c.rules, func(r rule) bool { return is(&r.settings) })
}

// Budgets returns the budgets of the rules, in their order. c may be nil.
func (c *Compiled) Budgets() (all []*RuleBudgets) {
	if c == nil {
		return nil
	}
	for i := range c.rules {
		if b := c.rules[i].budgets; b != nil {
			all = append(all, b)
		}
	}
	return all
}

// DecidedSetting is a setting of a request, by its name in the configuration. Rule is the rule that
// decides it, such as rules[2], or "" for a default.
type DecidedSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Rule  string `json:"rule,omitempty"`
}

// Deciders returns the settings of a request of u, each with the rule that decides it.
func (c *Compiled) Deciders(u user.Info, userAgent string, info *api.RequestInfo) []DecidedSetting {
	all := []DecidedSetting{}
	add := func(settings *Settings, rule string) {
		for _, s := range settings.list() {
			if !slices.ContainsFunc(all, func(o DecidedSetting) bool { return o.Name == s.Name }) {
				s.Rule = rule
				all = append(all, s)
			}
		}
	}
	for i := range c.rules {
		if r := &c.rules[i]; r.matches(u, userAgent, info) {
			add(&r.settings, ruleName(i))
		}
	}
	add(&c.defaults, "")
	return all
}

// list returns the settings that are set, as in a configuration.
func (s *Settings) list() (all []DecidedSetting) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, DecidedSetting{Name: name, Value: value})
		}
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	add("consistency", string(s.Mode))
	add("offline", s.Offline.word("allow", "deny"))
	add("selfReviews", s.SelfReviews.word("cached", "forwarded"))
	add("readOnly", s.ReadOnly.word("true", "false"))
	add("view", s.Redacted.word("redacted", "full"))
	add("visibleLists", s.VisibleLists.word("true", "false"))
	if s.DropManagedFields == Yes {
		add("drop", "metadata.managedFields")
	}
	if s.Coalesce != 0 {
		add("coalesce", max(s.Coalesce, 0).String())
	}
	add("watchBytesPerSecond", number(s.WatchBytesPerSecond))
	add("upstreamRequestsPerSecond", number(s.UpstreamRequestsPerSecond))
	add("upstreamBytesPerSecond", number(s.UpstreamBytesPerSecond))
	add("overBudget", string(s.OverBudget))
	add("block", s.Block.word("true", "false"))
	return all
}
