package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// livePaths are the settings, and groups of settings, that a running gateway takes over when its
// file changes. Package serve applies those of a cluster in cluster.setPolicy (policy, in
// options.go) and those of the process in Server.apply. All others need a restart. Where there are
// several clusters, the gateway itself replaces a cluster whose own settings need one.
var livePaths = []string{
	rulesPath, "consistency", "offline", "coalesce", "watchBytesPerSecond", "authorization.selfReviews",
	"limits.maxInFlight", "limits.maxWatches", "limits.maxResumedWatches", "limits.collapsedBodyBytes",
	"allClusters", "log.level",
}

// LivePaths returns the settings, and groups of settings, of which Live is true.
func LivePaths() []string { return slices.Clone(livePaths) }

// Live reports whether a running gateway takes over the setting at path, or the group of settings.
func Live(path string) bool {
	return slices.ContainsFunc(livePaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") })
}

// Reload returns the configuration that results from reading next while g is in force, the paths of
// the settings that changed, and of those that differ but need a restart. The error says that the
// settings that would change do not go with those that need a restart. Neither g nor next changes.
func (g *Gateway) Reload(next *Gateway) (inForce *Gateway, changed, waiting []string, err error) {
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
	if len(waiting) > 0 {
		o := newOrigins(c.program())
		o.elsewhere = true // files were looked for when they were read
		if c.program().check(o); len(o.errs) > 0 {
			err = fmt.Errorf("%w, as %s needs a restart", o.errs[0], strings.Join(waiting, ", "))
		}
	}
	return &c, changed, waiting, err
}

// SamePolicy reports whether no live setting differs between two clusters.
func (c *Cluster) SamePolicy(other *Cluster) bool {
	return !slices.ContainsFunc(changed(&c.Gateway, &other.Gateway, false), Live)
}
