package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validate returns the first thing that is wrong with g.
func validate(g *Gateway, o *origins) error {
	for _, check := range []func(*Gateway, *origins) error{
		checkListeners, checkFiles, checkCluster, checkTLS, checkRequestHeader, checkConsistency,
		checkNumbers, checkDurations, checkHistory, checkAudit,
	} {
		if err := check(g, o); err != nil {
			return err
		}
	}
	return nil
}

func checkListeners(g *Gateway, o *origins) error {
	if g.Listen == "" && g.InsecureListen == "" {
		return o.errorf("listen", "must not be empty without %s; give a host:port such as 127.0.0.1:8443", o.name("insecureListen"))
	}
	used := make(map[string]string)
	for _, l := range []struct {
		path, address string
		check         func(string) error
	}{
		{"listen", g.Listen, checkHostPort},
		{"insecureListen", g.InsecureListen, checkLoopback},
		{"adminListen", g.AdminListen, checkHostPort},
	} {
		if l.address == "" {
			continue
		}
		if err := l.check(l.address); err != nil {
			return o.errorf(l.path, "%w", err)
		}
		if other, taken := used[l.address]; taken && !strings.HasSuffix(l.address, ":0") {
			return o.errorf(l.path, "is %s, as %s is; give each listener its own", l.address, o.name(other))
		}
		used[l.address] = l.path
	}
	for i, host := range g.SidecarHosts {
		if host == "" || strings.ContainsAny(host, "/: ") {
			return o.errorf(listPath(o, "sidecarHosts", i), "must hold host names without port, not %q", host)
		}
	}
	return nil
}

// listPath is the path of an item when the list came from the file, and of the
// list otherwise.
func listPath(o *origins, path string, i int) string {
	if o.file != nil && !o.given(o.flags[path]) {
		return fmt.Sprintf("%s[%d]", path, i)
	}
	return path
}

func checkHostPort(address string) error {
	_, _, err := splitHostPort(address)
	return err
}

func splitHostPort(address string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("must be a host:port such as 127.0.0.1:8443 or [::]:8443, not %q", address)
	}
	return host, port, nil
}

// checkLoopback refuses what others than this machine can reach: everyone there
// has the gateway's own rights.
func checkLoopback(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("must name a unix socket by its absolute path, such as unix:/run/kubeweir.sock, not %q", address)
		}
		return nil
	}
	host, _, err := splitHostPort(address)
	if err != nil {
		return fmt.Errorf("must be a loopback host:port such as 127.0.0.1:8080, or unix:/path, not %q", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("must be a loopback address or a unix socket, not %q: everyone who reaches it has the gateway's own rights", address)
	}
	return nil
}

// checkFiles checks that the files that are read are there.
func checkFiles(g *Gateway, o *origins) error {
	files := filesOf(g)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name := *files[path]
		if path == "audit.path" || name == "" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return o.errorf(path, "is a file that cannot be used: %w", plainFileError(name, err))
		}
		info, err := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			return o.errorf(path, "is a file that cannot be used: %w", plainFileError(name, err))
		}
		if info.IsDir() {
			return o.errorf(path, "must be a file, and %s is a directory", name)
		}
	}
	return nil
}

func checkCluster(g *Gateway, o *origins) error {
	switch {
	case g.Kubeconfig == "" && g.Context != "":
		return o.errorf("context", "chooses a context of a kubeconfig, and %s is not set", o.name("kubeconfig"))
	case g.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "":
		return o.errorf("kubeconfig", "is not set and this is not a pod; give the kubeconfig of the cluster")
	}
	return nil
}

func checkTLS(g *Gateway, o *origins) error {
	switch {
	case g.TLS.CertFile != "" && g.TLS.PrivateKeyFile == "":
		return o.errorf("tls.certFile", "is set without %s; give both or none", o.name("tls.privateKeyFile"))
	case g.TLS.CertFile == "" && g.TLS.PrivateKeyFile != "":
		return o.errorf("tls.privateKeyFile", "is set without %s; give both or none", o.name("tls.certFile"))
	}
	return nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func checkRequestHeader(g *Gateway, o *origins) error {
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

func checkConsistency(g *Gateway, o *origins) error {
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

// bound is the range of a number. A most of 0 is no bound.
type bound struct {
	path  string
	value int64
	least int64
	most  int64
	bytes bool
}

func checkNumbers(g *Gateway, o *origins) error {
	count := func(path string, n int, least, most int64) bound { return bound{path, int64(n), least, most, false} }
	size := func(path string, n, least, most Bytes) bound {
		return bound{path, int64(n), int64(least), int64(most), true}
	}
	l := &g.Limits
	for _, b := range []bound{
		count("authentication.cacheSize", g.Authentication.CacheSize, 1, 10_000_000),
		count("authorization.cacheSize", g.Authorization.CacheSize, 1, 10_000_000),
		count("limits.maxInFlight", l.MaxInFlight, 0, 0),
		count("limits.maxWatches", l.MaxWatches, 0, 0),
		count("limits.maxResumedWatches", l.MaxResumedWatches, 0, 0),
		count("limits.maxConnections", l.MaxConnections, 1, 0),
		count("limits.maxStreams", l.MaxStreams, 1, 1<<31-1),
		size("limits.maxHeaderBytes", l.MaxHeaderBytes, 4<<10, 16<<20),
		size("limits.historyBytes", l.HistoryBytes, 1<<20, 0),
		count("limits.historyEvents", l.HistoryEvents, 100, 0),
		size("limits.snapshotBytes", l.SnapshotBytes, 1<<20, 0),
		size("limits.derivedCacheBytes", l.DerivedCacheBytes, 1<<20, 0),
		size("limits.collapsedBodyBytes", l.CollapsedBodyBytes, 1<<10, 0),
		size("limits.maxObjectBytes", l.MaxObjectBytes, 4<<20, 1<<30),
		count("limits.maxColdStarts", l.MaxColdStarts, 1, 0),
		count("limits.maxStartWaiters", l.MaxStartWaiters, 1, 0),
		count("limits.maxIndexes", l.MaxIndexes, 1, 1000),
		size("audit.maxSize", g.Audit.MaxSize, 0, 0),
		count("audit.maxBackups", g.Audit.MaxBackups, 0, 10_000),
	} {
		if err := b.check(o); err != nil {
			return err
		}
	}
	return nil
}

func (b *bound) check(o *origins) error {
	show := func(n int64) string {
		if b.bytes {
			return Bytes(n).String()
		}
		return strconv.FormatInt(n, 10)
	}
	switch {
	case b.value < b.least:
		return o.errorf(b.path, "must be at least %s, not %s", show(b.least), show(b.value))
	case b.most > 0 && b.value > b.most:
		return o.errorf(b.path, "must be at most %s, not %s", show(b.most), show(b.value))
	}
	return nil
}

func checkDurations(g *Gateway, o *origins) error {
	authn, authz, t := &g.Authentication, &g.Authorization, &g.Timeouts
	const day = 24 * time.Hour
	for _, d := range []struct {
		path        string
		value       time.Duration
		least, most time.Duration
	}{
		{"authentication.tokenTTL", authn.TokenTTL, time.Millisecond, time.Hour},
		{"authentication.tokenFailureTTL", authn.TokenFailureTTL, time.Millisecond, time.Hour},
		{"authentication.offlineTTL", authn.OfflineTTL, 0, 7 * day},
		{"authorization.allowedTTL", authz.AllowedTTL, time.Millisecond, time.Hour},
		{"authorization.deniedTTL", authz.DeniedTTL, time.Millisecond, time.Hour},
		{"authorization.watchRecheckPeriod", authz.WatchRecheckPeriod, time.Second, day},
		{"authorization.watchGrace", authz.WatchGrace, time.Second, day},
		{"consistency.maxStaleness", g.Consistency.MaxStaleness, 0, 0},
		{"limits.historyAge", g.Limits.HistoryAge, time.Second, 0},
		{"limits.snapshotAge", g.Limits.SnapshotAge, time.Second, 0},
		{"limits.idleCollectionTimeout", g.Limits.IdleCollectionTimeout, time.Second, 0},
		{"timeouts.handshake", t.Handshake, time.Millisecond, 0},
		{"timeouts.readHeader", t.ReadHeader, time.Millisecond, 0},
		{"timeouts.idle", t.Idle, time.Millisecond, 0},
		{"timeouts.bodyIdle", t.BodyIdle, time.Millisecond, 0},
		{"timeouts.write", t.Write, time.Millisecond, 0},
		{"timeouts.ping", t.Ping, time.Millisecond, 0},
		{"timeouts.pingAnswer", t.PingAnswer, time.Millisecond, 0},
		{"timeouts.review", t.Review, time.Millisecond, 0},
		{"timeouts.upstreamDial", t.UpstreamDial, time.Millisecond, 0},
		{"timeouts.upstreamRequest", t.UpstreamRequest, time.Millisecond, 0},
		{"timeouts.upstreamStall", t.UpstreamStall, time.Millisecond, 0},
		{"timeouts.upstreamPing", t.UpstreamPing, time.Millisecond, 0},
		{"timeouts.upstreamPingAnswer", t.UpstreamPingAnswer, time.Millisecond, 0},
		{"timeouts.feedRead", t.FeedRead, time.Millisecond, 0},
		{"timeouts.feedStale", t.FeedStale, time.Millisecond, 0},
		{"shutdown.drain", g.Shutdown.Drain, 0, time.Hour},
	} {
		switch {
		case d.value < d.least:
			return o.errorf(d.path, "must be at least %v, not %v", d.least, d.value)
		case d.most > 0 && d.value > d.most:
			return o.errorf(d.path, "must be at most %v, not %v", d.most, d.value)
		}
	}
	return nil
}

// checkHistory checks settings that must fit together.
func checkHistory(g *Gateway, o *origins) error {
	if g.Consistency.MaxStaleness > 0 && g.Consistency.MaxStaleness < g.Timeouts.UpstreamPing && usesSession(&g.Consistency) {
		return o.errorf("consistency.maxStaleness", "must be at least %s (%v), because a sign of life comes no more often",
			o.name("timeouts.upstreamPing"), g.Timeouts.UpstreamPing)
	}
	return nil
}

func usesSession(c *Consistency) bool {
	return c.Default == Session || slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Mode == Session })
}

func checkAudit(g *Gateway, o *origins) error {
	path := g.Audit.Path
	if path == "" || path == "-" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return o.errorf("audit.path", "must be a file, and %s is a directory", path)
	}
	dir := cmp.Or(filepath.Dir(path), ".")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return o.errorf("audit.path", "is in a directory that does not exist; make %s first", dir)
	}
	return nil
}
