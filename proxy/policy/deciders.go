package policy

import (
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
)

// DecidedSetting is what holds for a request, by the names of the configuration. Rule is the
// one that says it, such as rules[2], "" for what holds where no rule says something else.
type DecidedSetting struct{ Name, Value, Rule string }

// Deciders are the settings of a request of u, each with the rule that says it.
func (c *Compiled) Deciders(u user.Info, userAgent string, info *api.RequestInfo) (all []DecidedSetting) {
	add := func(says *Settings, rule string) {
		for _, s := range says.said() {
			if !slices.ContainsFunc(all, func(o DecidedSetting) bool { return o.Name == s.Name }) {
				s.Rule = rule
				all = append(all, s)
			}
		}
	}
	for i := range c.rules.list {
		if rule := &c.rules.list[i]; rule.matches(u, userAgent, info) {
			add(&rule.says, ruleName(i))
		}
	}
	add(&c.rules.all, "")
	return all
}

// said are the settings that are not left open, as a configuration has them.
func (s *Settings) said() (all []DecidedSetting) {
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
	coalesce := ""
	if s.Coalesce != 0 {
		coalesce = max(s.Coalesce, 0).String()
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
	add("coalesce", coalesce)
	add("watchBytesPerSecond", number(s.WatchBytesPerSecond))
	add("upstreamRequestsPerSecond", number(s.UpstreamRequestsPerSecond))
	add("upstreamBytesPerSecond", number(s.UpstreamBytesPerSecond))
	add("overBudget", string(s.OverBudget))
	add("block", s.Block.word("true", "false"))
	return all
}

// word is how a setting says it.
func (c Choice) word(yes, no string) string { return [...]string{"", yes, no}[c] }
