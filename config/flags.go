package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// setting ties a field of the file to its flag.
type setting struct {
	path  string // in the file: limits.maxInFlight
	flag  string
	value any // pointer to the field
	usage string
}

// settings lists all of g's fields but the consistency rules. Names that
// kube-apiserver has are kube-apiserver's.
func settings(g *Gateway) []setting {
	var (
		authn, header, authz = &g.Authentication, &g.Authentication.RequestHeader, &g.Authorization
		limits, timeouts     = &g.Limits, &g.Timeouts
	)
	return []setting{
		{"kubeconfig", "kubeconfig", &g.Kubeconfig, "`file` that says where the cluster is and who the gateway is there; without it the service account of the pod"},
		{"context", "context", &g.Context, "`name` of the kubeconfig's context to use (default its current one)"},
		{"listen", "listen", &g.Listen, "`host:port` of the TLS listener"},
		{"insecureListen", "insecure-listen", &g.InsecureListen, "loopback `host:port` or unix:/path of a plaintext listener, where everyone has the gateway's own identity"},
		{"sidecarHosts", "sidecar-hosts", &g.SidecarHosts, "host `names` by which --insecure-listen may be called besides localhost"},
		{"adminListen", "admin-listen", &g.AdminListen, "`host:port` of metrics, health and profiles; \"\" for none"},
		{"tls.certFile", "tls-cert-file", &g.TLS.CertFile, "PEM `file` of the serving certificate and its chain; without it one is generated"},
		{"tls.privateKeyFile", "tls-private-key-file", &g.TLS.PrivateKeyFile, "PEM `file` of its private key"},

		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, "let requests without credentials in as system:anonymous"},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, "PEM `file` with the CAs of client certificates"},
		{"authentication.requestHeader.caFile", "requestheader-client-ca-file", &header.CAFile, "PEM `file` with the CAs of authenticating proxies"},
		{"authentication.requestHeader.allowedNames", "requestheader-allowed-names", &header.AllowedNames, "common `names` of authenticating proxies (default any)"},
		{"authentication.requestHeader.usernameHeaders", "requestheader-username-headers", &header.UsernameHeaders, "`headers` of the user's name"},
		{"authentication.requestHeader.uidHeaders", "requestheader-uid-headers", &header.UIDHeaders, "`headers` of the user's UID"},
		{"authentication.requestHeader.groupHeaders", "requestheader-group-headers", &header.GroupHeaders, "`headers` of the user's groups"},
		{"authentication.requestHeader.extraHeaderPrefixes", "requestheader-extra-headers-prefix", &header.ExtraHeaderPrefixes, "`prefixes` of the headers of the user's extra fields"},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, "`time` for which an accepted token is believed without asking again"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, "`time` for which a refused token is refused without asking again"},
		{"authentication.offlineTTL", "authentication-offline-ttl", &authn.OfflineTTL, "`time` for which known tokens and permissions count longer while the cluster cannot be asked; 0 for not at all"},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, "`number` of tokens, and of certificates, remembered at most"},
		{"authorization.allowedTTL", "authorization-allowed-ttl", &authz.AllowedTTL, "`time` for which a permission is remembered"},
		{"authorization.deniedTTL", "authorization-denied-ttl", &authz.DeniedTTL, "`time` for which a refusal is remembered"},
		{"authorization.cacheSize", "authorization-cache-size", &authz.CacheSize, "`number` of decisions remembered at most"},
		{"authorization.watchRecheckPeriod", "authorization-watch-recheck-period", &authz.WatchRecheckPeriod, "`time` between reviews of an open watch's permission and credential"},
		{"authorization.watchGrace", "authorization-watch-grace", &authz.WatchGrace, "`time` for which an open watch goes on while it cannot be reviewed"},

		{"consistency.default", "consistency", &g.Consistency.Default, "how most-recent reads are answered: strict or session (`mode`); the file can have rules"},
		{"consistency.maxStaleness", "max-staleness", &g.Consistency.MaxStaleness, "`time` since the cluster's last sign of life within which session reads are answered from the cache; 0 for any"},

		{"limits.maxInFlight", "max-requests-inflight", &limits.MaxInFlight, "`number` of requests under way at most, but for long-running ones; 0 for no limit"},
		{"limits.maxWatches", "max-watches", &limits.MaxWatches, "`number` of watches and other long-running requests at most; 0 for no limit"},
		{"limits.maxResumedWatches", "max-resumed-watches", &limits.MaxResumedWatches, "`number` of watches that the cluster continues at most because they begin before the cache's history; 0 for no limit"},
		{"limits.maxConnections", "max-connections", &limits.MaxConnections, "`number` of open connections at most"},
		{"limits.maxStreams", "http2-max-streams-per-connection", &limits.MaxStreams, "`number` of concurrent requests on one HTTP/2 connection at most"},
		{"limits.maxHeaderBytes", "max-header-bytes", &limits.MaxHeaderBytes, "`size` of a request's header at most"},
		{"limits.historyAge", "history-age", &limits.HistoryAge, "`time` for which each collection keeps events"},
		{"limits.historyBytes", "history-bytes", &limits.HistoryBytes, "`size` of the events that each collection keeps at most"},
		{"limits.historyEvents", "history-events", &limits.HistoryEvents, "`number` of events that each collection keeps at most"},
		{"limits.snapshotAge", "snapshot-age", &limits.SnapshotAge, "`time` for which a retained state of a collection stays unused"},
		{"limits.snapshotBytes", "snapshot-bytes", &limits.SnapshotBytes, "`size` of what retained states of a collection keep from being freed at most"},
		{"limits.derivedCacheBytes", "derived-cache-bytes", &limits.DerivedCacheBytes, "`size` of the compressed lists, tables and metadata that are kept at most"},
		{"limits.collapsedBodyBytes", "collapsed-body-bytes", &limits.CollapsedBodyBytes, "`size` of an answer of the cluster that is shared between callers at most"},
		{"limits.maxObjectBytes", "max-object-bytes", &limits.MaxObjectBytes, "`size` of a cached object at most"},
		{"limits.maxColdStarts", "max-cold-starts", &limits.MaxColdStarts, "`number` of collections that read their first list at a time at most"},
		{"limits.maxStartWaiters", "max-start-waiters", &limits.MaxStartWaiters, "`number` of requests that wait for collections to start at most"},
		{"limits.maxIndexes", "max-indexes", &limits.MaxIndexes, "`number` of labels and fields indexed in a collection at most"},
		{"limits.idleCollectionTimeout", "idle-collection-timeout", &limits.IdleCollectionTimeout, "`time` without reads or watches after which a collection is dropped"},

		{"timeouts.handshake", "tls-handshake-timeout", &timeouts.Handshake, "`time` for a client's TLS handshake"},
		{"timeouts.readHeader", "read-header-timeout", &timeouts.ReadHeader, "`time` for reading a request's header"},
		{"timeouts.idle", "idle-timeout", &timeouts.Idle, "`time` for which a client's idle connection stays open"},
		{"timeouts.bodyIdle", "body-idle-timeout", &timeouts.BodyIdle, "`time` for which a request's body may bring nothing"},
		{"timeouts.write", "write-timeout", &timeouts.Write, "`time` for which a client may take nothing of a response"},
		{"timeouts.ping", "ping-interval", &timeouts.Ping, "`time` of silence after which an HTTP/2 client is pinged"},
		{"timeouts.pingAnswer", "ping-timeout", &timeouts.PingAnswer, "`time` for a client's answer to a ping"},
		{"timeouts.review", "review-timeout", &timeouts.Review, "`time` for one TokenReview or SubjectAccessReview"},
		{"timeouts.upstreamDial", "upstream-dial-timeout", &timeouts.UpstreamDial, "`time` for connecting to the cluster"},
		{"timeouts.upstreamRequest", "upstream-request-timeout", &timeouts.UpstreamRequest, "`time` till an answer of the cluster begins"},
		{"timeouts.upstreamStall", "upstream-stall-timeout", &timeouts.UpstreamStall, "`time` for which an answer of the cluster may stand still"},
		{"timeouts.upstreamPing", "upstream-ping-interval", &timeouts.UpstreamPing, "`time` of silence after which the cluster is pinged"},
		{"timeouts.upstreamPingAnswer", "upstream-ping-timeout", &timeouts.UpstreamPingAnswer, "`time` for the cluster's answer to a ping"},
		{"timeouts.feedRead", "feed-read-timeout", &timeouts.FeedRead, "`time` of silence after which a feed without pings is given up"},
		{"timeouts.feedStale", "feed-stale-after", &timeouts.FeedStale, "`time` of silence after which a feed is reported as stale"},

		{"audit.path", "audit-log-path", &g.Audit.Path, "`file` for audit events of reads served here, - for standard output"},
		{"audit.maxSize", "audit-log-max-size", &g.Audit.MaxSize, "`size` at which the audit log is put aside; 0 for never"},
		{"audit.maxBackups", "audit-log-max-backups", &g.Audit.MaxBackups, "`number` of audit logs put aside that are kept"},
		{"log.level", "log-level", &g.Log.Level, "least `severity` that is logged: debug, info, warn or error"},
		{"log.format", "log-format", &g.Log.Format, "`format` of log lines: text or json"},
		{"shutdown.drain", "shutdown-drain", &g.Shutdown.Drain, "`time` over which open watches and connections are ended after SIGTERM"},
	}
}

// flagValue makes a field a pflag.Value. A list is replaced by the first use of
// its flag and extended by the others.
type flagValue struct {
	field reflect.Value
	used  bool
}

func (f *flagValue) String() string {
	if !f.field.IsValid() {
		return "" // of the zero flagValue that pflag makes to know a default
	}
	return getText(f.field)
}

func (f *flagValue) Set(text string) error {
	if list, ok := f.field.Addr().Interface().(*[]string); ok {
		if !f.used {
			*list = nil
		}
		f.used = true
		for item := range strings.SplitSeq(text, ",") {
			*list = append(*list, strings.TrimSpace(item))
		}
		return nil
	}
	if !setText(f.field, text) {
		return fmt.Errorf("must be %s, not %q", expectation(f.field.Type()), short(text))
	}
	return nil
}

// Type is shown in the help of flags whose usage names no value.
func (f *flagValue) Type() string {
	if f.field.Kind() == reflect.Bool {
		return "bool"
	}
	return "value"
}

// newFlagSet binds all flags to g, whose fields are the defaults.
func newFlagSet(g *Gateway, file *string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("kubeweir gateway", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // errors are the caller's to print
	fs.StringVar(file, "config", "", "YAML `file` with the same settings as the flags, and rules of consistency; flags win")
	for _, s := range settings(g) {
		field := reflect.ValueOf(s.value).Elem()
		flag := fs.VarPF(&flagValue{field: field}, s.flag, "", s.usage)
		if field.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	return fs
}

// Help lists the flags with their defaults.
func Help() string {
	var file string
	return newFlagSet(Default(), &file).FlagUsagesWrapped(100)
}

// flagError makes one sentence of an error of pflag.
func flagError(err error, fs *pflag.FlagSet) error {
	var (
		unknown  *pflag.NotExistError
		noValue  *pflag.ValueRequiredError
		badValue *pflag.InvalidValueError
		syntax   *pflag.InvalidSyntaxError
	)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		return unknownFlag(unknown, fs)
	case errors.As(err, &noValue):
		name := noValue.GetSpecifiedName()
		return fmt.Errorf("--%s needs a value: %s", name, expectationOfFlag(fs, name))
	case errors.As(err, &badValue):
		return fmt.Errorf("--%s %w", badValue.GetFlag().Name, errors.Unwrap(badValue))
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is not a flag; see kubeweir gateway --help", syntax.GetSpecifiedFlag())
	}
	return err
}

func unknownFlag(err *pflag.NotExistError, fs *pflag.FlagSet) error {
	if shorts := err.GetSpecifiedShortnames(); shorts != "" {
		return fmt.Errorf("-%s is not a flag; flags begin with two dashes, see kubeweir gateway --help", shorts)
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := err.GetSpecifiedName()
	if similar := nearest(name, names); similar != "" {
		return fmt.Errorf("--%s is not a flag; did you mean --%s?", name, similar)
	}
	return fmt.Errorf("--%s is not a flag; see kubeweir gateway --help", name)
}

func expectationOfFlag(fs *pflag.FlagSet, name string) string {
	if v, ok := fs.Lookup(name).Value.(*flagValue); ok {
		return expectation(v.field.Type())
	}
	return "a file"
}

// nearest is the name that differs from s in few letters, "" if none does.
func nearest(s string, names []string) string {
	if len(s) > 64 {
		return ""
	}
	best, bestDistance := "", 1+len(s)/4
	for _, name := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(name)); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(previous[j]+cost, previous[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
