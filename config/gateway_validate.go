package config

import (
	"os"
	"regexp"
	"strings"

	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// validate reports errors in g, except for numbers out of bounds.
func (g *Gateway) validate(o *origins) {
	g.checkListeners(o)
	checkTLS(o, &g.TLS)
	g.checkServiceAccount(o)
	g.checkUpstream(o)
	checkAudit(o, &g.Audit)
	checkTracing(o, &g.Tracing)
	g.checkClusters(o)
}

// checkUpstream reports errors in the settings that a cluster may override.
func (g *Gateway) checkUpstream(o *origins) {
	g.checkCluster(o)
	if _, i, err := apiservers.Parse(g.UpstreamServers); err != nil {
		o.report(listPath(o, "upstreamServers", i), "%v", err)
	}
	g.checkAggregatedGroups(o)
	for i, name := range g.DropManagedFields {
		if name != "*" && !resourceName.MatchString(name) {
			o.report(listPath(o, "dropManagedFields", i), "must hold plural names such as pods or deployments.apps, or \"*\", not %q", short(name))
		}
	}
	for i, name := range g.State.Exclude {
		if !resourceName.MatchString(name) {
			o.report(listPath(o, "state.exclude", i), "must hold plural names such as configmaps or deployments.apps, not %q", short(name))
		}
	}
	if g.State.KeyFile != "" && g.State.Dir == "" {
		o.report("state.keyFile", "is set without %s", o.name("state.dir"))
	}
	checkCAs(o, certFile{"authentication.clientCAFile", g.Authentication.ClientCAFile},
		certFile{"authentication.requestHeader.caFile", g.Authentication.RequestHeader.CAFile})
	g.checkRequestHeader(o)
	if g.Coalesce < defaults.MinCoalesce {
		checkCoalesce(o, "coalesce", g.Coalesce) // else its bounds say it
	}
	checkWatchBytes(o, "watchBytesPerSecond", g.WatchBytesPerSecond)
	g.checkRules(o)
	g.checkStaleness(o)
}

func (g *Gateway) checkListeners(o *origins) {
	if g.Listen == "" && g.InsecureListen == "" {
		o.report("listen", "must not be empty without %s; give a host:port such as 127.0.0.1:8443", o.name("insecureListen"))
	}
	checkListeners(o,
		listener{"listen", g.Listen, checkHostPort},
		listener{"insecureListen", g.InsecureListen, checkLoopback},
		listener{"adminListen", g.AdminListen, checkHostPort},
	)
	for i, host := range g.SidecarHosts {
		if host == "" || strings.ContainsAny(host, "/: ") {
			o.report(listPath(o, "sidecarHosts", i), "must hold host names without port, not %q", short(host))
		}
	}
}

func (g *Gateway) checkAggregatedGroups(o *origins) {
	for i, group := range g.CacheAggregatedGroups {
		if !resourceName.MatchString(group) {
			o.report(listPath(o, "cacheAggregatedGroups", i), "must hold API groups such as projects.example.com, not %q", short(group))
		}
	}
}

func (g *Gateway) checkCluster(o *origins) {
	switch {
	case o.alone: // flags may say where the cluster is
	case g.Several(): // each says where it is
	case g.Kubeconfig == "" && g.Context != "":
		o.report("context", "chooses a context of a kubeconfig, and %s is not set", o.name("kubeconfig"))
	case g.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" && !o.elsewhere:
		o.report("kubeconfig", "is not set and this is not a pod; give the kubeconfig of the cluster")
	}
}

// checkServiceAccount checks the service account folder. Its token gives access to the gateway's
// own rights, as InsecureListen does.
func (g *Gateway) checkServiceAccount(o *origins) {
	const path = "serviceAccountDir"
	switch {
	case g.ServiceAccountDir == "":
	case g.Listen == "" || strings.HasPrefix(g.Listen, "unix:") || checkLoopback(g.Listen) != nil:
		o.report(path, "needs a loopback address in %s, such as 127.0.0.1:8443, not %q: its token has the gateway's own rights", o.name("listen"), g.Listen)
	case g.TLS.CertFile != "":
		o.report(path, "needs a certificate that the gateway makes itself; leave out %s", o.name("tls.certFile"))
	}
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (g *Gateway) checkRequestHeader(o *origins) {
	const prefix = "authentication.requestHeader."
	h := &g.Authentication.RequestHeader
	if h.CAFile == "" && len(h.AllowedNames) > 0 {
		o.report(prefix+"allowedNames", "has no effect without %s; set that too", o.name(prefix+"caFile"))
	}
	for i, name := range h.AllowedNames {
		if name == "" {
			o.report(listPath(o, prefix+"allowedNames", i), "must not be empty; leave the list out to allow every certificate of the CA")
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
			o.report(list.path, "must name a header, for instance X-Remote-User")
		}
		for i, name := range list.names {
			if !headerName.MatchString(name) {
				o.report(listPath(o, list.path, i), "must be the name of a header, not %q", short(name))
			}
		}
	}
}

// resourceName matches a plural with or without a group.
var resourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// checkStaleness checks settings that depend on each other.
func (g *Gateway) checkStaleness(o *origins) {
	if g.Consistency.MaxStaleness > 0 && g.Consistency.MaxStaleness < g.Timeouts.UpstreamPing && g.usesSession() {
		o.report("consistency.maxStaleness", "must be at least %s (%v), because a sign of life comes no more often",
			o.name("timeouts.upstreamPing"), durationText(g.Timeouts.UpstreamPing))
	}
}
