package proxy

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache"
)

// Mode says how a most-recent read (no resourceVersion) is answered.
type Mode string

const (
	// ModeStrict is linearizable: the upstream is asked after the request arrived.
	// It names the objects of a list and their versions, and what the cache holds of
	// just those is the answer (revalidation); else it answers itself. Identical
	// requests at the same time share what was begun after all of them arrived.
	ModeStrict Mode = "strict"
	// ModeSession answers from the cache once it holds every write that went
	// through this gateway.
	ModeSession Mode = "session"
)

// Consistency chooses the Mode of a read. It must not change while in use.
type Consistency struct {
	// Default is the mode when no rule matches.
	Default Mode
	// MaxStaleness is how long ago the feed's connection may have given a sign
	// of life for a session read; 0 means any time while the feed is up.
	MaxStaleness time.Duration
	// Rules are tried in order; the first that matches decides.
	Rules []Rule
}

// Match matches a read when each of its non-empty lists has a match. Users,
// groups and user agents may hold "*" for any run of characters; resources are
// "pods" or "deployments.apps".
type Match struct{ Users, Groups, UserAgents, Resources []string }

// Rule decides the mode of the reads that it matches.
type Rule struct {
	Match
	Mode Mode
}

// usesSession reports whether any read can be in session mode.
func (c *Consistency) usesSession() bool {
	return c.Default == ModeSession || slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Mode == ModeSession })
}

func (c *Consistency) modeFor(u user.Info, userAgent string, res *cache.Resource) Mode {
	for i := range c.Rules {
		if c.Rules[i].matches(u, userAgent, res) {
			return c.Rules[i].Mode
		}
	}
	return c.Default
}

func (r *Match) matches(u user.Info, userAgent string, res *cache.Resource) bool {
	if len(r.Users) > 0 && !anyGlob(r.Users, u.GetName()) {
		return false
	}
	if len(r.Groups) > 0 && !slices.ContainsFunc(u.GetGroups(), func(g string) bool { return anyGlob(r.Groups, g) }) {
		return false
	}
	if len(r.UserAgents) > 0 && !anyGlob(r.UserAgents, userAgent) {
		return false
	}
	return len(r.Resources) == 0 || slices.Contains(r.Resources, res.GroupResource().String())
}

func anyGlob(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, s) })
}

// glob matches s against a pattern in which "*" stands for any run of characters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}
