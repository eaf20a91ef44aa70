package config

import (
	"cmp"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Profile is a set of defaults for a use.
type Profile string

// The profiles.
const (
	NoProfile Profile = "none"
	// Dashboard is for what people look at: it reads much, again and again, and asks as
	// often what it may do.
	Dashboard Profile = "dashboard"
)

func (Profile) choices() []string { return []string{string(NoProfile), string(Dashboard)} }

// profilePath is the setting that chooses a profile for all requests.
const profilePath = "profile"

// dashboardIdle is for how long what a dashboard showed stays in memory: who comes back
// from a meeting does not wait for a full list.
const dashboardIdle = time.Hour

// dashboardAllowed is for how long a permission is remembered: who looks at pages takes longer
// for each than the default, and the next one needs the same rights.
const dashboardAllowed = time.Minute

// applyProfile sets what the profile has other defaults for, unless somebody has said it.
func (g *Gateway) applyProfile(isSet func(path string) bool) {
	if g.Profile != Dashboard {
		return
	}
	if !isSet("consistency.default") {
		g.Consistency.Default = Session
	}
	if !isSet("authorization.selfReviews") {
		g.Authorization.SelfReviews = Cached
	}
	if !isSet("authorization.allowedTTL") {
		g.Authorization.AllowedTTL = dashboardAllowed
	}
	if !isSet("coalesce") {
		g.Coalesce = defaults.DashboardCoalesce
	}
	if !isSet("watchBytesPerSecond") {
		g.WatchBytesPerSecond = defaults.DashboardWatchBytes
	}
	if !isSet("limits.idleCollectionTimeout") {
		g.Limits.IdleCollectionTimeout = dashboardIdle
	}
}

// Complete is the rule with what its profile says and it does not say itself.
func (r Rule) Complete() Rule {
	if r.Profile == Dashboard {
		r.Consistency = cmp.Or(r.Consistency, Session)
		r.SelfReviews = cmp.Or(r.SelfReviews, Cached)
		r.Coalesce = cmp.Or(r.Coalesce, Window(defaults.DashboardCoalesce))
		r.WatchBytesPerSecond = cmp.Or(r.WatchBytesPerSecond, defaults.DashboardWatchBytes)
	}
	return r
}
