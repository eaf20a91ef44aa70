package config

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// program describes a Gateway to Flags.
func (g *Gateway) program() *program {
	return &program{
		name: "gateway", document: g, sections: g.sections(), validate: g.validate, expand: g.expand,
		configUsage: "YAML `file` with the same settings as the flags, and rules; flags win",
	}
}

const day = 24 * time.Hour

func (g *Gateway) sections() []section {
	return slices.Concat([]section{{"Cluster", []setting{
		{"kubeconfig", "kubeconfig", &g.Kubeconfig, nil,
			"kubeconfig `file` with the cluster and the gateway's credentials; default: the service account of the pod", ""},
		{"context", "context", &g.Context, nil,
			"`name` of the kubeconfig context; default: its current context", ""},
		{"upstreamServers", "upstream-servers", &g.UpstreamServers, nil,
			"API `servers` of the cluster: addresses https://host:port, or one dns:///name:port for all addresses of a name, or endpointslices for the endpoints of the Service kubernetes; credentials and CA are those of the kubeconfig; default: the kubeconfig's server",
			"the gateway checks /readyz of each every timeouts.upstreamServerCheck, on separate connections"},
		{"cacheAggregatedGroups", "cache-aggregated-groups", &g.CacheAggregatedGroups, nil,
			"API `groups` of aggregated API servers to cache; their servers must return the same data to all users, in lists without kinds in the items; other aggregated groups are forwarded",
			"each of their resources that clients read costs memory and a watch"},
		{"dropManagedFields", "drop-managed-fields", &g.DropManagedFields, nil,
			"`resources` such as pods or deployments.apps, or \"*\", to cache without metadata.managedFields: responses from the cache lack them, for all clients, and so differ from the bytes of the cluster; forwarded responses and writes are unchanged",
			"saves a third to a half of an object's memory; clients that need managedFields, such as extract-and-apply clients, must not read these resources from the cache"},
	}}, {"Several clusters", []setting{
		{clustersPath, "", &g.Clusters, nil,
			"clusters behind the gateway, each with a name, hosts, pathPrefix (false: not at /clusters/NAME) and its own values of top-level settings",
			"limits of memory and requests apply to each cluster separately"},
		{"allClusters.maxInFlight", "all-clusters-max-requests-inflight", &g.AllClusters.MaxInFlight, atLeast(0),
			"maximum `number` of requests in flight over all clusters, except long-running ones; a cluster may hold three quarters; 0: no limit",
			"prevents a slow cluster from blocking the others; further requests get 429"},
		{"allClusters.maxWatches", "all-clusters-max-watches", &g.AllClusters.MaxWatches, atLeast(0),
			"maximum `number` of watches and other long-running requests over all clusters; a cluster may hold three quarters; 0: no limit",
			"further requests get 429"},
	}}, {"ClusterProfiles", g.ClusterProfiles.settings()}, {"Listening", slices.Concat([]setting{
		{"listen", "listen", &g.Listen, nil,
			"`host:port` of the TLS listener; \"\" for none, with --insecure-listen only", ""},
		{"insecureListen", "insecure-listen", &g.InsecureListen, nil,
			"loopback `host:port` or unix:/path of a plaintext listener, whose clients all use the gateway's identity", ""},
		{"sidecarHosts", "sidecar-hosts", &g.SidecarHosts, nil,
			"host `names` that requests to --insecure-listen may use besides localhost", ""},
	}, []setting{watchListCompressionSetting(&g.WatchListCompression)}, adminSettings(&g.AdminListen, &g.Profiling, &g.Console))}, {"Certificates", slices.Concat([]setting{
		{"certDir", "cert-dir", &g.CertDir, nil,
			"`folder` for the generated CA and certificate, which survive restarts, and for a kubeconfig with that CA; default: kubeweir in the user's cache folder", ""},
		{"serviceAccountDir", "service-account-dir", &g.ServiceAccountDir, nil,
			"`folder` in which to write ca.crt, namespace and token, for programs that expect the service account of a pod; with them they use a loopback --listen, with the gateway's identity", ""},
	}, tlsSettings(&g.TLS))}},
		g.identitySections(), []section{g.stateSettings(), {"Requests in flight", []setting{inFlightSetting(&g.Limits, "max-requests-inflight")}}}, limitSettings(&g.Limits), []section{
			servingSettings(&g.Timeouts.ServingTimeouts), g.upstreamSettings(),
		}, auditSettings(&g.Audit), []section{
			logSettings(&g.Log), tracingSettings(&g.Tracing), shutdownSettings(&g.Shutdown),
		})
}

// identitySections returns the settings of authentication, authorization and consistency.
func (g *Gateway) identitySections() []section {
	var authn, header, authz = &g.Authentication, &g.Authentication.RequestHeader, &g.Authorization
	return []section{{"Authentication", []setting{
		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, nil,
			"accept requests without credentials as system:anonymous", ""},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, nil,
			"PEM `file` with the CAs of client certificates, reloaded when it changes; without it no client certificate is accepted", ""},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, between(time.Millisecond, time.Hour),
			"`time` for which an accepted token is cached",
			"each token in use costs a TokenReview in this time; a revoked token stays valid for this time"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, between(time.Millisecond, time.Hour),
			"`time` for which a rejected token is cached",
			"each invalid token costs a TokenReview in this time"},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, between(1, 10_000_000),
			"maximum `number` of cached tokens, and of cached certificates",
			"each entry holds the user information of the token; tokens that are not cached are reviewed on each request"},
	}}, {"Authenticating proxies", []setting{
		{"authentication.requestHeader.caFile", "requestheader-client-ca-file", &header.CAFile, nil,
			"PEM `file` with the CAs of authenticating proxies, reloaded when it changes; without it no proxy is trusted", ""},
		{"authentication.requestHeader.allowedNames", "requestheader-allowed-names", &header.AllowedNames, nil,
			"common `names` of authenticating proxies; default: any", ""},
		{"authentication.requestHeader.usernameHeaders", "requestheader-username-headers", &header.UsernameHeaders, nil,
			"`headers` with the user's name", ""},
		{"authentication.requestHeader.uidHeaders", "requestheader-uid-headers", &header.UIDHeaders, nil,
			"`headers` with the user's UID", ""},
		{"authentication.requestHeader.groupHeaders", "requestheader-group-headers", &header.GroupHeaders, nil,
			"`headers` with the user's groups", ""},
		{"authentication.requestHeader.extraHeaderPrefixes", "requestheader-extra-headers-prefix", &header.ExtraHeaderPrefixes, nil,
			"`prefixes` of the headers with the user's extra fields", ""},
	}}, {"Authorization", []setting{
		{"authorization.allowedTTL", "authorization-allowed-ttl", &authz.AllowedTTL, between(time.Millisecond, time.Hour),
			"`time` for which a granted permission is cached",
			"each user and kind of read costs a SubjectAccessReview in this time; if the gateway may watch RBAC objects, a change of one invalidates it at once, otherwise a revoked permission stays valid for this time"},
		{"authorization.deniedTTL", "authorization-denied-ttl", &authz.DeniedTTL, between(time.Millisecond, time.Hour),
			"`time` for which a denied permission is cached",
			"each user and denied read costs a SubjectAccessReview in this time"},
		{"authorization.cacheSize", "authorization-cache-size", &authz.CacheSize, between(1, 10_000_000),
			"maximum `number` of cached decisions",
			"each entry is a digest and a reason; decisions that are not cached are reviewed on each request"},
		{"authorization.selfReviews", "self-reviews", &authz.SelfReviews, nil,
			"how self-reviews (kubectl auth can-i, whoami) are served (`answer`): forwarded, or cached with the cluster's response to the same review of the same user, for as long as decisions are cached, and invalidated with them; identical simultaneous reviews are coalesced",
			"with cached each user and review costs the cluster one request in that time, and up to 64 MiB of memory; rules can override it"},
		{"authorization.visibleNamespaces", "authorization-visible-namespaces", &authz.VisibleNamespaces, between(1000, 100_000_000),
			"maximum `number` of namespace names cached for rules with visibleLists; a user may use a quarter of it",
			"each name takes about 100 bytes per user who may list in that namespace; users who may list in more than four fifths of their share get 403; sets that are not cached are reviewed for each list"},
		{"authorization.watchRecheckPeriod", "authorization-watch-recheck-period", &authz.WatchRecheckPeriod, between(time.Second, day),
			"`time` between reviews of the permission and credential of an open watch",
			"each user and kind of watch costs a SubjectAccessReview in this time, and each token a TokenReview"},
		{"authorization.watchGrace", "authorization-watch-grace", &authz.WatchGrace, between(time.Second, day),
			"`time` for which an open watch continues while it cannot be reviewed", ""},
	}}, {"Consistency", []setting{
		{"consistency.default", "consistency", &g.Consistency.Default, nil,
			"consistency `mode` of most-recent reads: strict or session; rules can override it",
			"with strict each read involves the cluster, for names and versions only if the cache has the bytes, and identical reads are coalesced; with session reads cost the cluster nothing"},
		{"consistency.maxStaleness", "max-staleness", &g.Consistency.MaxStaleness, atLeast(time.Duration(0)),
			"`time` since the last contact with the cluster within which session reads are served from the cache; 0: no limit",
			"during a longer outage session reads are strict; must not be below timeouts.upstreamPing"},
	}}, {"Offline", []setting{
		{"offline.default", "offline", &g.Offline.Default, nil,
			"whether clients are served from the cache while no API server responds, by the cluster's last decisions about them: allow or deny (`answer`); rules can override it",
			"with allow a permission or token that is revoked during an outage stays valid until the outage ends; with deny, requests that need a new review get 503, and so do session reads"},
		{"offline.ttl", "offline-ttl", &g.Offline.TTL, between(time.Second, 7*day),
			"`time` for which the cluster's last decisions are valid in offline mode, and maximum age of responses",
			"requests for older data get 503"},
	}}, {"Coalesced watches", []setting{
		{"coalesce", "coalesce", &g.Coalesce, between(0, defaults.MaxCoalesce),
			"delivery interval of watches (`time`): of the modifications of an object within it, only the last is sent, additions and deletions all; 0: not coalesced, otherwise at least 10ms",
			"frequent changes are delayed by this time, and intermediate states are skipped; a client can request a longer interval with the parameter coalesce"},
		{"watchBytesPerSecond", "watch-bytes-per-second", &g.WatchBytesPerSecond, atLeast[Bytes](0),
			"limit on the `size` of the events of one watch per second, above which its delivery interval is extended; 0: no limit, otherwise at least 1Ki",
			"events wait for 2m at most; then the rest is sent above the limit"},
	}}, {"Rules", []setting{
		{profilePath, "profile", &g.Profile, nil,
			"`name` of a profile, which changes the defaults of some settings: none, or dashboard for a gateway that serves only dashboards; a rule can set it for some requests", ""},
		{rulesPath, "", &g.Rules, nil,
			"settings for some requests, selected by user, group, user agent and resource; for each setting the first matching rule that has it applies", ""},
	}}}
}

// stateSettings returns the settings of saved state.
func (g *Gateway) stateSettings() section {
	s := &g.State
	return section{"State", []setting{
		{"state.dir", "state-dir", &s.Dir, nil,
			"`folder` for checkpoints of the cache, used by this gateway only: after a restart the gateway loads them and reads only changes from the cluster; default: none",
			"cached objects are on disk, compressed, usually a tenth to a third of their bytes"},
		{"state.keyFile", "state-key-file", &s.KeyFile, nil,
			"`file` with a key (32 bytes, or their base64) that encrypts the checkpoints; without it Secrets and decisions about clients are not saved", ""},
		{"state.exclude", "state-exclude", &s.Exclude, nil,
			"`resources` such as configmaps or deployments.apps that are not saved", ""},
		{"state.maxBytes", "state-max-bytes", &s.MaxBytes, atLeast[Bytes](1 << 20),
			"maximum `size` of the checkpoints on disk; collections that do not fit are not saved",
			"a rewritten checkpoint briefly exists twice"},
		{"state.writeRate", "state-write-rate", &s.WriteRate, atLeast[Bytes](1 << 10),
			"maximum `size` of data written per second",
			"if more changes per second, checkpoints lag behind"},
		{"state.maxAge", "state-max-age", &s.MaxAge, atLeast(time.Second),
			"maximum age of a checkpoint (`time`); older ones are not used", ""},
	}}
}

// upstreamSettings returns the timeouts of requests to the cluster.
func (g *Gateway) upstreamSettings() section {
	t := &g.Timeouts
	return section{"Upstream timeouts", []setting{
		{"timeouts.review", "review-timeout", &t.Review, atLeast(time.Millisecond),
			"maximum `time` that a request waits for its TokenReview, or for a SubjectAccessReview",
			"then the request gets 503"},
		{"timeouts.upstreamDial", "upstream-dial-timeout", &t.UpstreamDial, atLeast(time.Millisecond),
			"`time` limit for connecting to the cluster", ""},
		{"timeouts.upstreamRequest", "upstream-request-timeout", &t.UpstreamRequest, atLeast(time.Millisecond),
			"`time` limit for the response headers of the cluster", ""},
		{"timeouts.upstreamStall", "upstream-stall-timeout", &t.UpstreamStall, atLeast(time.Millisecond),
			"`time` limit for pauses in a response of the cluster", ""},
		{"timeouts.upstreamSilence", "upstream-silence-timeout", &t.UpstreamSilence, atLeast(100 * time.Millisecond),
			"`time` of silence after which the cluster is unreachable: waiting requests end, and new ones get 503 at once", ""},
		{"timeouts.upstreamServerCheck", "upstream-server-check-interval", &t.UpstreamServerCheck, between(100*time.Millisecond, time.Minute),
			"`time` between readiness checks of each of several API servers", ""},
		{"timeouts.upstreamServerSilence", "upstream-server-silence-timeout", &t.UpstreamServerSilence, between(100*time.Millisecond, time.Minute),
			"`time` of silence after which waiting reads and feeds move from one of several API servers to another",
			"if it is too short for a slow link, healthy servers count as frozen"},
		{"timeouts.upstreamPing", "upstream-ping-interval", &t.UpstreamPing, atLeast(time.Millisecond),
			"`time` of silence after which the gateway pings the cluster",
			"a ping costs one packet each way on an idle connection"},
		{"timeouts.upstreamPingAnswer", "upstream-ping-timeout", &t.UpstreamPingResponse, atLeast(time.Millisecond),
			"`time` limit for the cluster's response to a ping, or for any other data from it",
			"on a slow link the response queues behind other data"},
		{"timeouts.feedRead", "feed-read-timeout", &t.FeedRead, atLeast(time.Millisecond),
			"`time` of silence after which a feed without pings is restarted",
			"bookmarks arrive about once a minute; a shorter time restarts idle feeds repeatedly"},
		{"timeouts.feedStale", "feed-stale-after", &t.FeedStale, atLeast(time.Millisecond),
			"`time` of silence after which a feed counts as stale", ""},
	}}
}
