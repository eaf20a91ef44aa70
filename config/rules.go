package config

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// rulesPath is the setting that has the rules. It has no flag.
const rulesPath = "rules"

// Match matches a request when each of its lists that is not empty has a match.
type Match struct {
	// Users, Groups and UserAgents are names in which "*" stands for any run of
	// characters: "Headlamp*", "system:serviceaccount:ci:*".
	Users      []string `json:"users"`
	Groups     []string `json:"groups"`
	UserAgents []string `json:"userAgents"`
	// Resources are plural names, with their group unless it is the core group:
	// "pods", "deployments.apps". Events of either group are the same objects, and bindings
	// are pods'.
	Resources []string `json:"resources"`
}

// Rule sets how matching requests are served. A setting that is "" is not set: the next matching
// rule decides, and after the last rule the setting for all requests applies.
type Rule struct {
	Match
	// Profile sets defaults for the other settings of the rule.
	Profile Profile `json:"profile"`
	// Consistency determines how reads of the most recent state are served.
	Consistency Mode `json:"consistency"`
	// Offline determines whether reads are served by the cluster's last decisions while no API
	// server responds.
	Offline Response `json:"offline"`
	// SelfReviews determines how reviews of a client about itself are served.
	SelfReviews SelfReviews `json:"selfReviews"`
	// ReadOnly rejects every request that is not certainly a read, whatever the cluster allows.
	ReadOnly Switch `json:"readOnly"`
	// Coalesce is the delivery interval of a watch, during which events of the same object are
	// merged.
	Coalesce Window `json:"coalesce"`
	// WatchBytesPerSecond is the rate above which the delivery interval of a watch is extended.
	WatchBytesPerSecond Bytes `json:"watchBytesPerSecond"`
	// VisibleLists replaces the 403 for a cluster-wide list or watch by the namespaces that the
	// user may list.
	VisibleLists Switch `json:"visibleLists"`
	// UpstreamRequestsPerSecond and UpstreamBytesPerSecond limit the load that each user may cause
	// at the cluster, averaged over ten seconds; 0 means not set.
	UpstreamRequestsPerSecond int   `json:"upstreamRequestsPerSecond"`
	UpstreamBytesPerSecond    Bytes `json:"upstreamBytesPerSecond"`
	// OverBudget determines what happens to requests above that limit.
	OverBudget OverBudget `json:"overBudget"`
	// Block rejects all requests with 429.
	Block Switch `json:"block"`
	// View determines which parts of objects are shown.
	View View `json:"view"`
	// Drop lists fields that are removed from objects: ManagedFields is the only one.
	Drop []string `json:"drop"`
}

// ManagedFields is the only field that a rule may drop. Clients can write objects without it back:
// kube-apiserver preserves existing managedFields (KEP-555). It treats missing annotations as
// deleted, so rules cannot drop them.
const ManagedFields = "metadata.managedFields"

// OverBudget determines what happens to a request above an upstream budget.
type OverBudget string

// The values of OverBudget.
const (
	RejectOverBudget OverBudget = "reject"
	CachedOverBudget OverBudget = "cached"
)

func (OverBudget) choices() []string {
	return []string{string(RejectOverBudget), string(CachedOverBudget)}
}

// hasBudget reports whether the rule limits upstream load.
func (r *Rule) hasBudget() bool {
	return r.UpstreamRequestsPerSecond != 0 || r.UpstreamBytesPerSecond != 0
}

// Window is a duration in a rule; 0 means not set.
type Window time.Duration

// NoWindow is a window that was explicitly set to 0.
const NoWindow Window = math.MinInt64

// String returns the form that files use.
func (w Window) String() string { return durationText(time.Duration(max(w, 0))) }

// View determines which parts of objects are shown.
type View string

// The views.
const (
	// Full shows objects as the cluster does.
	Full View = "full"
	// Redacted leaves out the contents of Secrets, literal values of environment variables, and
	// copies of objects in annotations. Responses that cannot be redacted are rejected.
	Redacted View = "redacted"
)

func (View) choices() []string { return []string{string(Full), string(Redacted)} }

// Switch is true, false, or "" for not set.
type Switch string

// The values of a Switch.
const (
	On  Switch = "true"
	Off Switch = "false"
)

func (Switch) choices() []string { return []string{string(On), string(Off)} }

// hasSetting reports whether the rule has any setting.
func (r *Rule) hasSetting() bool {
	return r.Profile == Dashboard || r.Consistency != "" || r.Offline != "" || r.SelfReviews != "" || r.ReadOnly != "" ||
		r.Coalesce != 0 || r.WatchBytesPerSecond != 0 || r.hasBudget() || r.OverBudget != "" || r.Block != "" || r.View != "" || r.VisibleLists != "" || len(r.Drop) > 0
}

// rulesExample are rules for a file.
const rulesExample = `
# All clients read Leases with strict consistency.
- resources: [leases.coordination.k8s.io]
  consistency: strict
# Dashboards see their own writes at once, and others' as soon as the feed delivers them.
- userAgents: ["Headlamp*", "k9s*"]
  profile: dashboard
# Browsers get changes twice a second, and at most 100 kB per second.
- userAgents: ["Mozilla/*"]
  coalesce: 500ms
  watchBytesPerSecond: 100k
# Secrets are never read with a permission that may have been revoked.
- resources: [secrets]
  offline: deny
# Agents may only read, whatever their tokens allow, and see no secret values.
- users: ["system:serviceaccount:agents:*"]
  readOnly: true
  view: redacted
# Each k9s user may cause five requests per second at the cluster; further reads are cached.
- userAgents: ["k9s*"]
  upstreamRequestsPerSecond: 5
  upstreamBytesPerSecond: 10M
  overBudget: cached
# Teams see their own namespaces when they list all namespaces.
- groups: ["team:*"]
  visibleLists: true
# Operators with their own cache get objects without managedFields, a third of most objects.
- userAgents: ["argocd-application-controller*", "keda*"]
  drop: [metadata.managedFields]
# Programs of the node continue to read from the cache during an outage.
- groups: ["system:nodes", "system:serviceaccounts:kube-system"]
  consistency: session
  offline: allow
`

// checkRules reports what is wrong with the rules.
func (g *Gateway) checkRules(o *origins) {
	for i := range g.Rules {
		rule, path := &g.Rules[i], fmt.Sprintf("%s[%d]", rulesPath, i)
		g.checkBudget(o, rule, path)
		if !rule.hasSetting() {
			o.report(path, "has no setting; add one of profile: dashboard, consistency, offline, selfReviews, readOnly, visibleLists, coalesce, watchBytesPerSecond, upstreamRequestsPerSecond, upstreamBytesPerSecond, overBudget, block, view or drop")
		}
		if rule.Coalesce != NoWindow {
			checkCoalesce(o, path+".coalesce", time.Duration(rule.Coalesce))
		}
		checkWatchBytes(o, path+".watchBytesPerSecond", rule.WatchBytesPerSecond)
		for j, field := range rule.Drop {
			if field != ManagedFields {
				o.report(fmt.Sprintf("%s.drop[%d]", path, j), "must be %s, not %q: clients that write objects back would delete other fields", ManagedFields, short(field))
			}
		}
		checkMatch(o, &rule.Match, path)
	}
}

// The upper bounds of budgets; larger values are probably mistakes.
const (
	maxBudgetRequests = 1_000_000
	maxBudgetBytes    = Bytes(1 << 40)
)

// checkBudget checks the budget settings of the rule at path.
func (g *Gateway) checkBudget(o *origins, rule *Rule, path string) {
	requests, bytes := path+".upstreamRequestsPerSecond", path+".upstreamBytesPerSecond"
	if n := rule.UpstreamRequestsPerSecond; n < 0 || n > maxBudgetRequests || n == 0 && o.isSet(requests) {
		o.report(requests, "must be from 1 to %d, not %d; set block: true to reject all requests", maxBudgetRequests, n)
	}
	if n := rule.UpstreamBytesPerSecond; n != 0 && n < minWatchBytes || n > maxBudgetBytes || n == 0 && o.isSet(bytes) {
		o.report(bytes, "must be from %v to %v, not %v; set block: true to reject all requests", minWatchBytes, maxBudgetBytes, n)
	}
	if rule.OverBudget != "" && !slices.ContainsFunc(g.Rules, func(r Rule) bool { return r.hasBudget() }) {
		o.report(path+".overBudget", "has no effect, as no rule has upstreamRequestsPerSecond or upstreamBytesPerSecond")
	}
}

// minWatchBytes is the lowest useful rate of a watch.
const minWatchBytes = Bytes(1 << 10)

// checkCoalesce checks a delivery interval; 0 means none.
func checkCoalesce(o *origins, path string, window time.Duration) {
	if window != 0 && (window < defaults.MinCoalesce || window > defaults.MaxCoalesce) {
		o.report(path, "must be 0 or from %s to %s, not %s", durationText(defaults.MinCoalesce), durationText(defaults.MaxCoalesce), durationText(window))
	}
}

// checkWatchBytes checks the byte rate of a watch; 0 means none.
func checkWatchBytes(o *origins, path string, most Bytes) {
	if most != 0 && most < minWatchBytes {
		o.report(path, "must be 0 or at least %v, not %v", minWatchBytes, most)
	}
}

// checkMatch checks the match of the rule at path.
func checkMatch(o *origins, match *Match, path string) {
	var names []string
	empty := true
	for _, list := range []struct {
		name  string
		items []string
	}{{"users", match.Users}, {"groups", match.Groups}, {"userAgents", match.UserAgents}, {"resources", match.Resources}} {
		names = append(names, list.name)
		empty = empty && len(list.items) == 0
		if j := slices.Index(list.items, ""); j >= 0 {
			o.report(fmt.Sprintf("%s.%s[%d]", path, list.name, j), "must not be empty; remove it, or use \"*\" for everything")
		}
	}
	if empty {
		o.report(path, "does not say whom it is for; add %s, or users: [\"*\"] for everybody", alternatives(names))
	}
	for j, name := range match.Resources {
		if name != "" && !resourceName.MatchString(name) {
			o.report(fmt.Sprintf("%s.resources[%d]", path, j), "must be a plural name such as pods or deployments.apps, not %q", short(name))
		}
	}
}

// usesSession reports whether any read can have session consistency.
func (g *Gateway) usesSession() bool {
	return g.Consistency.Default == Session || slices.ContainsFunc(g.Rules, func(r Rule) bool { return r.Complete().Consistency == Session })
}

// ServesOffline reports whether any client is served while no API server responds.
func (g *Gateway) ServesOffline() bool {
	return g.Offline.Default == Allow || slices.ContainsFunc(g.Rules, func(r Rule) bool { return r.Offline == Allow })
}
