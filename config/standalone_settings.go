package config

import (
	"slices"
	"time"
)

// program describes a Standalone to Flags.
func (s *Standalone) program() *program {
	return &program{
		name: "standalone", document: s, sections: s.sections(), validate: s.validate,
		configUsage: "YAML `file` with the same settings as the flags; flags win",
	}
}

func (s *Standalone) sections() []section {
	return slices.Concat([]section{{"Storage", []setting{
		{"dataDir", "data-dir", &s.DataDir, nil,
			"`folder` for objects, keys, certificates and the administrator's kubeconfig; created if necessary",
			"takes disk space for the objects, five minutes of history, and a reserve of 64 MiB"},
		{"etcd.servers", "etcd-servers", &s.Etcd.Servers, nil,
			"`URLs` of an etcd cluster that stores the objects instead of the data folder", ""},
		{"etcd.prefix", "etcd-prefix", &s.Etcd.Prefix, nil,
			"`prefix` of all keys in etcd", ""},
		{"etcd.caFile", "etcd-cafile", &s.Etcd.CAFile, nil,
			"PEM `file` with the CAs of etcd's certificates", ""},
		{"etcd.certFile", "etcd-certfile", &s.Etcd.CertFile, nil,
			"PEM `file` with the client certificate for etcd", ""},
		{"etcd.keyFile", "etcd-keyfile", &s.Etcd.KeyFile, nil,
			"PEM `file` with the private key of the client certificate for etcd", ""},
		{"encryption.providerConfigFile", "encryption-provider-config", &s.Encryption.ProviderConfigFile, nil,
			"`file` with an EncryptionConfiguration of kube-apiserver, by which objects are encrypted in the data folder or in etcd",
			"CPU for each object written or read; a KMS plugin that does not respond delays writes"},
		{"encryption.automaticReload", "encryption-provider-config-automatic-reload", &s.Encryption.AutomaticReload, nil,
			"apply changes of the EncryptionConfiguration file within a minute", ""},
	}}, {"Listening", slices.Concat([]setting{
		{"listen", "listen", &s.Listen, nil,
			"`host:port` of the API", ""},
		{"advertiseAddress", "advertise-address", &s.AdvertiseAddress, nil,
			"IP `address` at which clients reach the API; default: that of --listen, otherwise the machine's", ""},
	}, []setting{watchListCompressionSetting(&s.WatchListCompression)}, adminSettings(&s.AdminListen, &s.Profiling, &s.Console))},
		{"Certificates", tlsSettings(&s.TLS)}, s.authenticationSettings(), s.tokenSettings(), s.authorizationSettings(), {"API", []setting{
			{"services.clusterIPRange", "service-cluster-ip-range", &s.Services.ClusterIPRange, nil,
				"`CIDR` of the cluster IPs of Services, with 8 to about a million (/12) addresses; or two for dual-stack Services, one of IPv4 and one of IPv6, separated by a comma", ""},
			{"services.nodePortRange", "service-node-port-range", &s.Services.NodePortRange, nil,
				"`range` of node ports, from-to", ""},
			{"admission.enablePlugins", "enable-admission-plugins", &s.Admission.EnablePlugins, nil,
				"admission `plugins` to enable in addition to the default ones", ""},
			{"admission.disablePlugins", "disable-admission-plugins", &s.Admission.DisablePlugins, nil,
				"default admission `plugins` to disable", ""},
			{"controllers", "controllers", &s.Controllers, nil,
				"`controllers` of kube-controller-manager to run in this process, such as namespace, garbagecollector or deployment; * means all that it runs by default, -job all but job",
				"memory and CPU, see docs/standalone.md"},
			{"scheduler", "scheduler", &s.Scheduler, nil,
				"run kube-scheduler in this process", ""},
			{"fakeNodes", "fake-nodes", &s.FakeNodes, between(0, 1000),
				"`number` of nodes whose Pods are simulated: they become Running, without containers", ""},
			{"eventTTL", "event-ttl", &s.EventTTL, atLeast(time.Second),
				"`time` after which Event objects expire",
				"the events of this time are on disk, and in memory if clients read them"},
		}}, s.fairnessSettings()},
		limitSettings(&s.Limits), []section{servingSettings(&s.Timeouts)}, auditSettings(&s.Audit), []section{
			logSettings(&s.Log), tracingSettings(&s.Tracing), shutdownSettings(&s.Shutdown),
		})
}

func (s *Standalone) fairnessSettings() section {
	p := &s.PriorityAndFairness
	return section{"Requests in flight", []setting{
		{"priorityAndFairness.enabled", "enable-priority-and-fairness", &p.Enabled, nil,
			"queue requests by FlowSchemas and PriorityLevelConfigurations; otherwise those above the two limits get 429 at once",
			"about 100 ns for each read from memory; a few microseconds for each other request"},
		{"priorityAndFairness.maxRequestsInFlight", "max-requests-inflight", &p.MaxRequestsInFlight, between(0, 1_000_000),
			"`number` of requests served at a time, which the priority levels share, together with that of requests that change objects; without priority and fairness the limit of requests that only read, 0: no limit",
			"limits peak memory and CPU time; further requests wait or get 429. Reads from memory count only while their priority level has no free seat, see docs/standalone.md"},
		{"priorityAndFairness.maxMutatingRequestsInFlight", "max-mutating-requests-inflight", &p.MaxMutatingRequestsInFlight, between(0, 1_000_000),
			"`number` of requests that change objects, which is added to the number above; without priority and fairness their limit, 0: no limit",
			"see maxRequestsInFlight"},
		inFlightSetting(&s.Limits, "max-total-requests-inflight"),
	}}
}

func (s *Standalone) authenticationSettings() section {
	authn := &s.Authentication
	return section{"Authentication", []setting{
		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, nil,
			"accept requests without credentials as system:anonymous, which may read only health and version", ""},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, nil,
			"PEM `file` with CAs of client certificates in addition to the one in the data folder", ""},
		{"authentication.tokenAuthFile", "token-auth-file", &authn.TokenAuthFile, nil,
			"CSV `file` with bearer tokens: token,user,uid,\"group1,group2\"", ""},
		{"authentication.configFile", "authentication-config", &authn.ConfigFile, nil,
			"`file` with an AuthenticationConfiguration: JWT issuers, and conditions for anonymous requests; it is read again when it changes", ""},
		{"authentication.bootstrapTokens", "enable-bootstrap-token-auth", &authn.BootstrapTokens, nil,
			"accept the tokens of Secrets of type bootstrap.kubernetes.io/token in kube-system", ""},
		{"authentication.oidc.issuerURL", "oidc-issuer-url", &authn.OIDC.IssuerURL, nil,
			"`URL` of an OpenID Connect issuer whose ID tokens are accepted", ""},
		{"authentication.oidc.clientID", "oidc-client-id", &authn.OIDC.ClientID, nil,
			"client `ID` for which the ID tokens must be issued", ""},
		{"authentication.oidc.caFile", "oidc-ca-file", &authn.OIDC.CAFile, nil,
			"PEM `file` with the CAs of the issuer's certificate; default: those of the machine", ""},
		{"authentication.oidc.usernameClaim", "oidc-username-claim", &authn.OIDC.UsernameClaim, nil,
			"`claim` with the user name", ""},
		{"authentication.oidc.usernamePrefix", "oidc-username-prefix", &authn.OIDC.UsernamePrefix, nil,
			"`prefix` of user names, - for none; default: the issuer's URL and #, or none with the claim email", ""},
		{"authentication.oidc.groupsClaim", "oidc-groups-claim", &authn.OIDC.GroupsClaim, nil,
			"`claim` with the groups", ""},
		{"authentication.oidc.groupsPrefix", "oidc-groups-prefix", &authn.OIDC.GroupsPrefix, nil,
			"`prefix` of groups", ""},
		{"authentication.oidc.signingAlgs", "oidc-signing-algs", &authn.OIDC.SigningAlgs, nil,
			"signature `algorithms` of ID tokens that are accepted", ""},
		{"authentication.oidc.requiredClaims", "oidc-required-claim", &authn.OIDC.RequiredClaims, nil,
			"`claims` that an ID token must have, as claim=value", ""},
		{"authentication.webhook.configFile", "authentication-token-webhook-config-file", &authn.Webhook.ConfigFile, nil,
			"kubeconfig `file` of a webhook that reviews tokens which nothing else accepts", ""},
		{"authentication.webhook.version", "authentication-token-webhook-version", &authn.Webhook.Version, nil,
			"`version` of the TokenReviews for the webhook, v1 or v1beta1", ""},
		{"authentication.webhook.cacheTTL", "authentication-token-webhook-cache-ttl", &authn.Webhook.CacheTTL, between(time.Duration(0), 24*time.Hour),
			"`time` for which the webhook's responses are cached", ""},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, between(time.Millisecond, time.Hour),
			"`time` for which an accepted token is cached",
			"each token in use costs a signature check in this time"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, between(time.Millisecond, time.Hour),
			"`time` for which a rejected token is cached", ""},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, between(1, 10_000_000),
			"maximum `number` of cached tokens, and of cached certificates",
			"each entry holds the user information of the token; tokens that are not cached are checked on each request"},
	}}
}

func (s *Standalone) tokenSettings() section {
	authn := &s.Authentication
	return section{"Service account tokens", []setting{
		{"authentication.serviceAccounts.issuer", "service-account-issuer", &authn.ServiceAccounts.Issuer, nil,
			"issuer of service account tokens, a `URL`", ""},
		{"authentication.serviceAccounts.audiences", "api-audiences", &authn.ServiceAccounts.Audiences, nil,
			"`audiences` of which a service account token must have one; default: the issuer", ""},
		{"authentication.serviceAccounts.signingKeyFile", "service-account-signing-key-file", &authn.ServiceAccounts.SigningKeyFile, nil,
			"PEM `file` with the private key that signs service account tokens; default: a generated key",
			"tokens that the generated key has signed are no longer accepted"},
		{"authentication.serviceAccounts.keyFiles", "service-account-key-file", &authn.ServiceAccounts.KeyFiles, nil,
			"PEM `files` with further public keys, or certificates, that verify service account tokens", ""},
	}}
}

func (s *Standalone) authorizationSettings() section {
	return section{"Authorization", []setting{
		{"authorization.mode", "authorization-mode", &s.Authorization.Mode, nil,
			"`modes` of authorization, in their order, of RBAC, Node, Webhook, AlwaysAllow and AlwaysDeny; with Node,RBAC, kubelets need no roles, and read only what their own Pods use; with AlwaysAllow, every authenticated client may do everything",
			"with Node, all nodes, Pods and volumes are in memory once more"},
		{"authorization.configFile", "authorization-config", &s.Authorization.ConfigFile, nil,
			"`file` with an AuthorizationConfiguration, which replaces the modes; it is read again when it changes", ""},
		{"authorization.webhook.configFile", "authorization-webhook-config-file", &s.Authorization.Webhook.ConfigFile, nil,
			"kubeconfig `file` of the webhook of the mode Webhook", ""},
		{"authorization.webhook.version", "authorization-webhook-version", &s.Authorization.Webhook.Version, nil,
			"`version` of the SubjectAccessReviews for the webhook, v1 or v1beta1", ""},
		{"authorization.webhook.authorizedTTL", "authorization-webhook-cache-authorized-ttl", &s.Authorization.Webhook.AuthorizedTTL, between(time.Duration(0), 24*time.Hour),
			"`time` for which permissions of the webhook are cached", ""},
		{"authorization.webhook.unauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl", &s.Authorization.Webhook.UnauthorizedTTL, between(time.Duration(0), 24*time.Hour),
			"`time` for which rejections of the webhook are cached", ""},
	}}
}
