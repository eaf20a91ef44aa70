package config

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// program is what Flags needs to know of a Gateway.
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
			"`file` that says where the cluster is and who the gateway is there; without it the service account of the pod", ""},
		{"context", "context", &g.Context, nil,
			"`name` of the kubeconfig's context to use (default its current one)", ""},
		{"upstreamServers", "upstream-servers", &g.UpstreamServers, nil,
			"API `servers` of the cluster, as addresses https://host:port, or one dns:///name:port for all addresses of a name, or endpointslices for the endpoints of the Service kubernetes; who the gateway is and which certificates are good says the kubeconfig; without it the kubeconfig's server alone",
			"each is asked for /readyz every timeouts.upstreamServerCheck, and has connections of its own"},
		{"cacheAggregatedGroups", "cache-aggregated-groups", &g.CacheAggregatedGroups, nil,
			"API `groups` of aggregated API servers that answer everybody alike, and whose lists have no kind in their items, to be cached; others are forwarded",
			"each of their resources that is read costs memory and a watch, as any other"},
		{"dropManagedFields", "drop-managed-fields", &g.DropManagedFields, nil,
			"`resources` such as pods or deployments.apps, or \"*\", of which metadata.managedFields are not kept: answers from the cache are without them, for everybody, and so not byte for byte what the cluster wrote, as they are of other resources; what the cluster answers, and every write, is as it was",
			"a third to a half of an object's memory is saved; who reads managedFields, such as extract-and-apply clients, must not read these resources here"},
	}}, {"Several clusters", []setting{
		{clustersPath, "", &g.Clusters, nil,
			"clusters to stand in front of, each with a name, its hosts, pathPrefix (false for not below /clusters/NAME) and what it has of its own besides the settings of the top level",
			"each has the limits of memory and of requests for itself"},
		{"allClusters.maxInFlight", "all-clusters-max-requests-inflight", &g.AllClusters.MaxInFlight, atLeast(0),
			"`number` of requests under way over all clusters at most, but for long-running ones, of which a cluster gets three quarters; 0 for no limit",
			"keeps a slow cluster from taking the places of the others; one more is answered 429"},
		{"allClusters.maxWatches", "all-clusters-max-watches", &g.AllClusters.MaxWatches, atLeast(0),
			"`number` of watches and other long-running requests over all clusters at most, of which a cluster gets three quarters; 0 for no limit",
			"one more is answered 429"},
	}}, {"Clusters of a hub", g.ClusterProfiles.settings()}, {"Listening", slices.Concat([]setting{
		{"listen", "listen", &g.Listen, nil,
			"`host:port` of the TLS listener; \"\" for none beside --insecure-listen", ""},
		{"insecureListen", "insecure-listen", &g.InsecureListen, nil,
			"loopback `host:port` or unix:/path of a plaintext listener, where everyone has the gateway's own identity", ""},
		{"sidecarHosts", "sidecar-hosts", &g.SidecarHosts, nil,
			"host `names` by which --insecure-listen may be called besides localhost", ""},
	}, []setting{watchListCompressionSetting(&g.WatchListCompression)}, adminSettings(&g.AdminListen, &g.Profiling, &g.Console))}, {"Certificates", slices.Concat([]setting{
		{"certDir", "cert-dir", &g.CertDir, nil,
			"`folder` where a generated CA and certificate are kept over restarts, with a kubeconfig that knows them (default the folder kubeweir in the user's cache folder)", ""},
		{"serviceAccountDir", "service-account-dir", &g.ServiceAccountDir, nil,
			"`folder` to fill with ca.crt, namespace and token, by which programs that expect the service account of a pod reach a loopback --listen, with the gateway's own identity", ""},
	}, tlsSettings(&g.TLS))}},
		g.identitySections(), []section{g.stateSettings()}, limitSettings(&g.Limits), []section{
			servingSettings(&g.Timeouts.ServingTimeouts), g.upstreamSettings(),
			auditSettings(&g.Audit, &g.Log), shutdownSettings(&g.Shutdown),
		})
}

// identitySections say who is believed, what they may do and how new what they read is.
func (g *Gateway) identitySections() []section {
	var authn, header, authz = &g.Authentication, &g.Authentication.RequestHeader, &g.Authorization
	return []section{{"Authentication", []setting{
		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, nil,
			"let requests without credentials in as system:anonymous", ""},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, nil,
			"PEM `file` with the CAs of client certificates, read again when it changes; without it none is accepted", ""},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, between(time.Millisecond, time.Hour),
			"`time` for which an accepted token is believed without asking again",
			"each token in use costs a TokenReview in this time; a token that is revoked is believed so long"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, between(time.Millisecond, time.Hour),
			"`time` for which a refused token is refused without asking again",
			"each bad token costs a TokenReview in this time"},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, between(1, 10_000_000),
			"`number` of tokens, and of certificates, remembered at most",
			"each has what the token says of its user in memory; a token that is not remembered is reviewed at each request"},
	}}, {"Authenticating proxies", []setting{
		{"authentication.requestHeader.caFile", "requestheader-client-ca-file", &header.CAFile, nil,
			"PEM `file` with the CAs of authenticating proxies, read again when it changes; without it no proxy is trusted", ""},
		{"authentication.requestHeader.allowedNames", "requestheader-allowed-names", &header.AllowedNames, nil,
			"common `names` of authenticating proxies (default any)", ""},
		{"authentication.requestHeader.usernameHeaders", "requestheader-username-headers", &header.UsernameHeaders, nil,
			"`headers` of the user's name", ""},
		{"authentication.requestHeader.uidHeaders", "requestheader-uid-headers", &header.UIDHeaders, nil,
			"`headers` of the user's UID", ""},
		{"authentication.requestHeader.groupHeaders", "requestheader-group-headers", &header.GroupHeaders, nil,
			"`headers` of the user's groups", ""},
		{"authentication.requestHeader.extraHeaderPrefixes", "requestheader-extra-headers-prefix", &header.ExtraHeaderPrefixes, nil,
			"`prefixes` of the headers of the user's extra fields", ""},
	}}, {"Authorization", []setting{
		{"authorization.allowedTTL", "authorization-allowed-ttl", &authz.AllowedTTL, between(time.Millisecond, time.Hour),
			"`time` for which a permission is remembered",
			"each user and kind of read costs a SubjectAccessReview in this time; where the gateway may watch RBAC objects, a change of one ends it at once, else a revoked right counts so long"},
		{"authorization.deniedTTL", "authorization-denied-ttl", &authz.DeniedTTL, between(time.Millisecond, time.Hour),
			"`time` for which a refusal is remembered",
			"each user and refused read costs a SubjectAccessReview in this time"},
		{"authorization.cacheSize", "authorization-cache-size", &authz.CacheSize, between(1, 10_000_000),
			"`number` of decisions remembered at most",
			"each is a digest and a reason in memory; what is not remembered is reviewed at each request"},
		{"authorization.selfReviews", "self-reviews", &authz.SelfReviews, nil,
			"how clients that ask what they may do, or who they are, are answered (`answer`): forwarded, or cached with the cluster's own answer to the same question of the same user, for as long as decisions are remembered, and dropped with them; simultaneous questions are one",
			"with cached each user and question costs the cluster one request in that time, and up to 64 MiB of memory; a rule may say otherwise"},
		{"authorization.visibleNamespaces", "authorization-visible-namespaces", &authz.VisibleNamespaces, between(1000, 100_000_000),
			"`number` of names of namespaces remembered at most for rules with visibleLists; a user, by name, has a quarter of it",
			"each takes some 100 bytes of memory, and is there once for each user who may list in it; who may list in more than four fifths of that gets 403, and of what is not remembered each list asks the cluster anew"},
		{"authorization.watchRecheckPeriod", "authorization-watch-recheck-period", &authz.WatchRecheckPeriod, between(time.Second, day),
			"`time` between reviews of an open watch's permission and credential",
			"in this time each user and kind of watch costs a SubjectAccessReview, and each token a TokenReview"},
		{"authorization.watchGrace", "authorization-watch-grace", &authz.WatchGrace, between(time.Second, day),
			"`time` for which an open watch goes on while it cannot be reviewed", ""},
	}}, {"Consistency", []setting{
		{"consistency.default", "consistency", &g.Consistency.Default, nil,
			"how most-recent reads are answered: strict or session (`mode`); the file can have rules",
			"strict asks the cluster each time, for names and versions where the cache has the bytes, many identical reads as one; session asks nothing"},
		{"consistency.maxStaleness", "max-staleness", &g.Consistency.MaxStaleness, atLeast(time.Duration(0)),
			"`time` since the cluster's last sign of life within which session reads are answered from the cache; 0 for any",
			"a longer outage makes session reads strict; must not be below timeouts.upstreamPing"},
	}}, {"Offline", []setting{
		{"offline.default", "offline", &g.Offline.Default, nil,
			"whether clients are served from the cache while no API server answers, by what the cluster said of them last: allow or deny (`answer`); the file can have rules",
			"with allow a right or token that is revoked during an outage counts till its end; with deny who is asked about anew is answered 503, and so are session reads"},
		{"offline.ttl", "offline-ttl", &g.Offline.TTL, between(time.Second, 7*day),
			"`time` for which the cluster's last word counts, and how old answers may be, where that is allowed",
			"older answers are refused with 503"},
	}}, {"Watches that wait", []setting{
		{"coalesce", "coalesce", &g.Coalesce, between(0, defaults.MaxCoalesce),
			"`time` for which the events of a watch wait after others were sent; of the modifications of an object that come meanwhile the client gets the last, additions and deletions all; 0 for none, else at least 10ms",
			"what changes often is seen so much later, and states in between are not; a client may ask for more by the parameter coalesce"},
		{"watchBytesPerSecond", "watch-bytes-per-second", &g.WatchBytesPerSecond, atLeast[Bytes](0),
			"`size` of what the events of one watch may bring in a second before they wait longer, as those that coalesce; 0 for no bound, else at least 1Ki",
			"they wait for 2m at most: what is more then is sent nevertheless"},
	}}, {"Rules", []setting{
		{profilePath, "profile", &g.Profile, nil,
			"`name` of a profile, whose defaults some of the settings have: none, or dashboard for a gateway that serves dashboards alone; a rule can have it for some requests", ""},
		{rulesPath, "", &g.Rules, nil,
			"what holds for some requests, by user, group, user agent and resource; of each setting, the first rule that matches and has it decides", ""},
	}}}
}

// stateSettings say what is kept over restarts.
func (g *Gateway) stateSettings() section {
	s := &g.State
	return section{"State", []setting{
		{"state.dir", "state-dir", &s.Dir, nil,
			"`folder`, of this gateway alone, where what is cached is kept: after a restart a gateway goes on with it and reads from the cluster only what has changed (default none)",
			"what is cached, compressed, is on disk; a tenth to a third of the bytes as a rule"},
		{"state.keyFile", "state-key-file", &s.KeyFile, nil,
			"`file` with a key, 32 bytes or their base64, that what is kept is sealed with; without it Secrets, and what clients are known by, are not kept", ""},
		{"state.exclude", "state-exclude", &s.Exclude, nil,
			"`resources` such as configmaps or deployments.apps that are not kept", ""},
		{"state.maxBytes", "state-max-bytes", &s.MaxBytes, atLeast[Bytes](1 << 20),
			"`size` of what is kept at most, on disk; a collection that does not fit is not kept",
			"what is written anew is there twice for a moment"},
		{"state.writeRate", "state-write-rate", &s.WriteRate, atLeast[Bytes](1 << 10),
			"`size` of what is written in a second at most",
			"below what changes in a second, what is kept falls behind"},
		{"state.maxAge", "state-max-age", &s.MaxAge, atLeast(time.Second),
			"`time` since it was written after which what is kept is not used", ""},
	}}
}

// upstreamSettings say how long the cluster is waited for.
func (g *Gateway) upstreamSettings() section {
	t := &g.Timeouts
	return section{"Timeouts of the cluster", []setting{
		{"timeouts.review", "review-timeout", &t.Review, atLeast(time.Millisecond),
			"`time` that a request waits for its TokenReview, or for a SubjectAccessReview, at most",
			"then it is answered 503"},
		{"timeouts.upstreamDial", "upstream-dial-timeout", &t.UpstreamDial, atLeast(time.Millisecond),
			"`time` for connecting to the cluster", ""},
		{"timeouts.upstreamRequest", "upstream-request-timeout", &t.UpstreamRequest, atLeast(time.Millisecond),
			"`time` till an answer of the cluster begins", ""},
		{"timeouts.upstreamStall", "upstream-stall-timeout", &t.UpstreamStall, atLeast(time.Millisecond),
			"`time` for which an answer of the cluster may stand still", ""},
		{"timeouts.upstreamSilence", "upstream-silence-timeout", &t.UpstreamSilence, atLeast(100 * time.Millisecond),
			"`time` without any sign of life of the cluster after which requests that wait for it end, and new ones are answered 503 at once", ""},
		{"timeouts.upstreamServerCheck", "upstream-server-check-interval", &t.UpstreamServerCheck, between(100*time.Millisecond, time.Minute),
			"`time` between two questions to one of several API servers whether it is ready", ""},
		{"timeouts.upstreamServerSilence", "upstream-server-silence-timeout", &t.UpstreamServerSilence, between(100*time.Millisecond, time.Minute),
			"`time` without any sign of life of one of several API servers after which reads that wait for it, and feeds, go to another",
			"too short a time on a slow link takes a server that is well for one that is frozen"},
		{"timeouts.upstreamPing", "upstream-ping-interval", &t.UpstreamPing, atLeast(time.Millisecond),
			"`time` of silence after which the cluster is pinged",
			"that is a packet each way while nothing else comes"},
		{"timeouts.upstreamPingAnswer", "upstream-ping-timeout", &t.UpstreamPingAnswer, atLeast(time.Millisecond),
			"`time` for the cluster's answer to a ping, or for any other byte from it",
			"on a slow link the answer waits its turn behind those"},
		{"timeouts.feedRead", "feed-read-timeout", &t.FeedRead, atLeast(time.Millisecond),
			"`time` of silence after which a feed without pings is given up",
			"bookmarks come about once a minute; below that each quiet feed resumes its watch again and again"},
		{"timeouts.feedStale", "feed-stale-after", &t.FeedStale, atLeast(time.Millisecond),
			"`time` of silence after which a feed is reported as stale", ""},
	}}
}
