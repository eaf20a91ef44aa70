package config

import "slices"

// program is what Parse needs to know of a Gateway. All fields have a flag but the
// rules of consistency.
func (g *Gateway) program() *program {
	return &program{
		name: "gateway", document: g, settings: g.settings(), validate: g.validate,
		configUsage: "YAML `file` with the same settings as the flags, and rules of consistency; flags win",
		files: map[string]*string{
			"kubeconfig":                          &g.Kubeconfig,
			"certDir":                             &g.CertDir,
			"serviceAccountDir":                   &g.ServiceAccountDir,
			"tls.certFile":                        &g.TLS.CertFile,
			"tls.privateKeyFile":                  &g.TLS.PrivateKeyFile,
			"authentication.clientCAFile":         &g.Authentication.ClientCAFile,
			"authentication.requestHeader.caFile": &g.Authentication.RequestHeader.CAFile,
			"audit.path":                          &g.Audit.Path,
		},
	}
}

func (g *Gateway) settings() []setting {
	var authn, header, authz, timeouts = &g.Authentication, &g.Authentication.RequestHeader, &g.Authorization, &g.Timeouts
	return slices.Concat([]setting{
		{"kubeconfig", "kubeconfig", &g.Kubeconfig, "`file` that says where the cluster is and who the gateway is there; without it the service account of the pod"},
		{"context", "context", &g.Context, "`name` of the kubeconfig's context to use (default its current one)"},
		{"listen", "listen", &g.Listen, "`host:port` of the TLS listener"},
		{"insecureListen", "insecure-listen", &g.InsecureListen, "loopback `host:port` or unix:/path of a plaintext listener, where everyone has the gateway's own identity"},
		{"sidecarHosts", "sidecar-hosts", &g.SidecarHosts, "host `names` by which --insecure-listen may be called besides localhost"},
		{"adminListen", "admin-listen", &g.AdminListen, "`host:port` of metrics, health and profiles; \"\" for none"},
		{"profiling", "profiling", &g.Profiling, "whether the admin listener serves /debug/pprof (`choice`): true, false, or auto, which is true on a loopback address"},
		{"cacheAggregatedGroups", "cache-aggregated-groups", &g.CacheAggregatedGroups, "API `groups` of aggregated API servers that answer everybody alike, and whose lists have no kind in their items, to be cached; others are forwarded"},
		{"certDir", "cert-dir", &g.CertDir, "`folder` where a generated CA and certificate are kept over restarts, with a kubeconfig that knows them (default the folder kubeweir in the user's cache folder)"},
		{"serviceAccountDir", "service-account-dir", &g.ServiceAccountDir, "`folder` to fill with ca.crt, namespace and token, by which programs that expect the service account of a pod reach a loopback --listen, with the gateway's own identity"},
	}, tlsSettings(&g.TLS), []setting{
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
	}, limitSettings(&g.Limits), servingSettings(&g.Timeouts.ServingTimeouts), []setting{
		{"timeouts.review", "review-timeout", &timeouts.Review, "`time` that a request waits for its TokenReview, or for a SubjectAccessReview, at most"},
		{"timeouts.upstreamDial", "upstream-dial-timeout", &timeouts.UpstreamDial, "`time` for connecting to the cluster"},
		{"timeouts.upstreamRequest", "upstream-request-timeout", &timeouts.UpstreamRequest, "`time` till an answer of the cluster begins"},
		{"timeouts.upstreamStall", "upstream-stall-timeout", &timeouts.UpstreamStall, "`time` for which an answer of the cluster may stand still"},
		{"timeouts.upstreamSilence", "upstream-silence-timeout", &timeouts.UpstreamSilence, "`time` without any sign of life of the cluster after which requests that wait for it end, and new ones are answered 503 at once"},
		{"timeouts.upstreamPing", "upstream-ping-interval", &timeouts.UpstreamPing, "`time` of silence after which the cluster is pinged"},
		{"timeouts.upstreamPingAnswer", "upstream-ping-timeout", &timeouts.UpstreamPingAnswer, "`time` for the cluster's answer to a ping"},
		{"timeouts.feedRead", "feed-read-timeout", &timeouts.FeedRead, "`time` of silence after which a feed without pings is given up"},
		{"timeouts.feedStale", "feed-stale-after", &timeouts.FeedStale, "`time` of silence after which a feed is reported as stale"},
	}, auditSettings(&g.Audit), logSettings(&g.Log), shutdownSettings(&g.Shutdown))
}
