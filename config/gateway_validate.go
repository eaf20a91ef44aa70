package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// validate returns the first thing that is wrong with g.
func (g *Gateway) validate(o *origins) error {
	return firstOf(o, g.checkListeners,
		func(o *origins) error { return checkFiles(o, g.program().files) },
		g.checkCluster, g.checkAggregatedGroups,
		func(o *origins) error { return checkTLS(o, &g.TLS) }, g.checkServiceAccount,
		g.checkRequestHeader, g.checkConsistency, g.checkNumbers, g.checkDurations, g.checkStaleness,
		func(o *origins) error { return checkAudit(o, &g.Audit) },
	)
}

func (g *Gateway) checkListeners(o *origins) error {
	if g.Listen == "" && g.InsecureListen == "" {
		return o.errorf("listen", "must not be empty without %s; give a host:port such as 127.0.0.1:8443", o.name("insecureListen"))
	}
	if err := checkListeners(o,
		listener{"listen", g.Listen, checkHostPort},
		listener{"insecureListen", g.InsecureListen, checkLoopback},
		listener{"adminListen", g.AdminListen, checkHostPort},
	); err != nil {
		return err
	}
	for i, host := range g.SidecarHosts {
		if host == "" || strings.ContainsAny(host, "/: ") {
			return o.errorf(listPath(o, "sidecarHosts", i), "must hold host names without port, not %q", host)
		}
	}
	return nil
}

func (g *Gateway) checkAggregatedGroups(o *origins) error {
	for i, group := range g.CacheAggregatedGroups {
		if !resourceName.MatchString(group) {
			return o.errorf(listPath(o, "cacheAggregatedGroups", i), "must hold API groups such as projects.example.com, not %q", group)
		}
	}
	return nil
}

func (g *Gateway) checkCluster(o *origins) error {
	switch {
	case g.Kubeconfig == "" && g.Context != "":
		return o.errorf("context", "chooses a context of a kubeconfig, and %s is not set", o.name("kubeconfig"))
	case g.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "":
		return o.errorf("kubeconfig", "is not set and this is not a pod; give the kubeconfig of the cluster")
	}
	return nil
}

// checkServiceAccount: the token in the folder is as good as a way to InsecureListen.
func (g *Gateway) checkServiceAccount(o *origins) error {
	const path = "serviceAccountDir"
	switch {
	case g.ServiceAccountDir == "":
		return nil
	case g.Listen == "" || strings.HasPrefix(g.Listen, "unix:") || checkLoopback(g.Listen) != nil:
		return o.errorf(path, "needs a loopback address in %s, such as 127.0.0.1:8443, not %q: its token has the gateway's own rights", o.name("listen"), g.Listen)
	case g.TLS.CertFile != "":
		return o.errorf(path, "needs a certificate that the gateway makes itself; leave out %s", o.name("tls.certFile"))
	}
	return nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (g *Gateway) checkRequestHeader(o *origins) error {
	const prefix = "authentication.requestHeader."
	h := &g.Authentication.RequestHeader
	if h.CAFile == "" && len(h.AllowedNames) > 0 {
		return o.errorf(prefix+"allowedNames", "has no effect without %s; set that too", o.name(prefix+"caFile"))
	}
	for i, name := range h.AllowedNames {
		if name == "" {
			return o.errorf(listPath(o, prefix+"allowedNames", i), "must not be empty; leave the list out to allow every certificate of the CA")
		}
	}
	for _, list := range []struct {
		path     string
		names    []string
		required bool
	}{
		{prefix + "usernameHeaders", h.UsernameHeaders, true},
		{prefix + "uidHeaders", h.UIDHeaders, false},
		{prefix + "groupHeaders", h.GroupHeaders, false},
		{prefix + "extraHeaderPrefixes", h.ExtraHeaderPrefixes, false},
	} {
		if list.required && len(list.names) == 0 {
			return o.errorf(list.path, "must name a header, for instance X-Remote-User")
		}
		for i, name := range list.names {
			if !headerName.MatchString(name) {
				return o.errorf(listPath(o, list.path, i), "must be the name of a header, not %q", name)
			}
		}
	}
	return nil
}

// resourceName is a plural, with a group or without.
var resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (g *Gateway) checkConsistency(o *origins) error {
	for i := range g.Consistency.Rules {
		rule, path := &g.Consistency.Rules[i], fmt.Sprintf("consistency.rules[%d]", i)
		if rule.Mode == "" {
			return o.errorf(path, "has no mode; add mode: strict or mode: session")
		}
		empty := true
		for _, list := range []struct {
			name  string
			items []string
		}{{"users", rule.Users}, {"groups", rule.Groups}, {"userAgents", rule.UserAgents}, {"resources", rule.Resources}} {
			empty = empty && len(list.items) == 0
			if j := slices.Index(list.items, ""); j >= 0 {
				return o.errorf(fmt.Sprintf("%s.%s[%d]", path, list.name, j), "must not be empty; remove it, or use \"*\" for everything")
			}
		}
		if empty {
			return o.errorf(path, "matches every read; set consistency.default instead, or add users, groups, userAgents or resources")
		}
		for j, name := range rule.Resources {
			if !resourceName.MatchString(name) {
				return o.errorf(fmt.Sprintf("%s.resources[%d]", path, j), "must be a plural name such as pods or deployments.apps, not %q", name)
			}
		}
	}
	return nil
}

func (g *Gateway) checkNumbers(o *origins) error {
	return checkNumbers(o, &g.Limits, &g.Audit,
		count("authentication.cacheSize", g.Authentication.CacheSize, 1, 10_000_000),
		count("authorization.cacheSize", g.Authorization.CacheSize, 1, 10_000_000),
	)
}

func (g *Gateway) checkDurations(o *origins) error {
	authn, authz, t := &g.Authentication, &g.Authorization, &g.Timeouts
	const day = 24 * time.Hour
	return checkDurations(o, &g.Limits, &t.ServingTimeouts, &g.Shutdown,
		span{"authentication.tokenTTL", authn.TokenTTL, time.Millisecond, time.Hour},
		span{"authentication.tokenFailureTTL", authn.TokenFailureTTL, time.Millisecond, time.Hour},
		span{"authentication.offlineTTL", authn.OfflineTTL, 0, 7 * day},
		span{"authorization.allowedTTL", authz.AllowedTTL, time.Millisecond, time.Hour},
		span{"authorization.deniedTTL", authz.DeniedTTL, time.Millisecond, time.Hour},
		span{"authorization.watchRecheckPeriod", authz.WatchRecheckPeriod, time.Second, day},
		span{"authorization.watchGrace", authz.WatchGrace, time.Second, day},
		span{"consistency.maxStaleness", g.Consistency.MaxStaleness, 0, 0},
		span{"timeouts.review", t.Review, time.Millisecond, 0},
		span{"timeouts.upstreamDial", t.UpstreamDial, time.Millisecond, 0},
		span{"timeouts.upstreamRequest", t.UpstreamRequest, time.Millisecond, 0},
		span{"timeouts.upstreamStall", t.UpstreamStall, time.Millisecond, 0},
		span{"timeouts.upstreamSilence", t.UpstreamSilence, 100 * time.Millisecond, 0},
		span{"timeouts.upstreamPing", t.UpstreamPing, time.Millisecond, 0},
		span{"timeouts.upstreamPingAnswer", t.UpstreamPingAnswer, time.Millisecond, 0},
		span{"timeouts.feedRead", t.FeedRead, time.Millisecond, 0},
		span{"timeouts.feedStale", t.FeedStale, time.Millisecond, 0},
	)
}

// checkStaleness checks settings that must fit together.
func (g *Gateway) checkStaleness(o *origins) error {
	if g.Consistency.MaxStaleness > 0 && g.Consistency.MaxStaleness < g.Timeouts.UpstreamPing && usesSession(&g.Consistency) {
		return o.errorf("consistency.maxStaleness", "must be at least %s (%v), because a sign of life comes no more often",
			o.name("timeouts.upstreamPing"), g.Timeouts.UpstreamPing)
	}
	return nil
}

func usesSession(c *Consistency) bool {
	return c.Default == Session || slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Mode == Session })
}
