package config

import (
	"cmp"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Profile is a set of defaults for a use case.
type Profile string

// The profiles.
const (
	NoProfile Profile = "none"
	// Dashboard is for programs that people look at. They read often and request the most recent
	// state each time.
	Dashboard Profile = "dashboard"
)

func (Profile) choices() []string { return []string{string(NoProfile), string(Dashboard)} }

// profilePath is the setting that chooses a profile for all requests.
const profilePath = "profile"

// dashboardIdle is how long the resources of a dashboard stay cached, so that a user who returns
// after an hour does not wait for a full list.
const dashboardIdle = time.Hour

// dashboardAllowed is for how long a permission is remembered: who looks at pages takes longer
// for each than the default, and the next one needs the same rights.
const dashboardAllowed = time.Minute

// applyProfile sets the settings that the profile changes, unless they are set explicitly.
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

// Complete returns the rule with the settings of its profile, except for those that it sets itself.
func (r Rule) Complete() Rule {
	if r.Profile == Dashboard {
		r.Consistency = cmp.Or(r.Consistency, Session)
		r.SelfReviews = cmp.Or(r.SelfReviews, Cached)
		r.Coalesce = cmp.Or(r.Coalesce, Window(defaults.DashboardCoalesce))
		r.WatchBytesPerSecond = cmp.Or(r.WatchBytesPerSecond, defaults.DashboardWatchBytes)
	}
	return r
}
