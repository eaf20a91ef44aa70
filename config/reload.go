package config

import (
	"reflect"
	"slices"
	"strings"
)

// livePaths are the settings, and groups of settings, that a gateway takes over while it runs
// when its file changes. Others need a restart; those that a cluster may have of its own, where
// there are several, a restart of that cluster alone, which the gateway does itself.
var livePaths = []string{
	rulesPath, "consistency", "offline", "coalesce", "watchBytesPerSecond", "authorization.selfReviews",
	"limits.maxInFlight", "limits.maxWatches", "limits.maxResumedWatches", "limits.collapsedBodyBytes",
	"allClusters", "audit", "log.level",
}

// LivePaths returns the settings, and groups of settings, of which Live is true.
func LivePaths() []string { return slices.Clone(livePaths) }

// Live reports whether a running gateway takes over the setting at path, or the group of settings.
func Live(path string) bool {
	return slices.ContainsFunc(livePaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") })
}

// Reload returns the settings in force once next was read while those of g are, the paths of
// those that changed, and of those that differ but need a restart. Neither g nor next changes.
func (g *Gateway) Reload(next *Gateway) (inForce *Gateway, changed, waiting []string) {
	c := *g
	several := g.Several()
	from := next.program().settings()
	for i, s := range c.program().settings() {
		switch {
		case reflect.DeepEqual(s.value, from[i].value):
		case Live(s.path), several && (s.path == clustersPath || !OfProcess(s.path)):
			reflect.ValueOf(s.value).Elem().Set(reflect.ValueOf(from[i].value).Elem())
			changed = append(changed, s.path)
		default:
			waiting = append(waiting, s.path)
		}
	}
	return &c, changed, waiting
}

// SamePolicy reports whether no live setting differs between two clusters.
func (c *Cluster) SamePolicy(other *Cluster) bool {
	return !slices.ContainsFunc(changed(&c.Gateway, &other.Gateway, false), Live)
}
