package config

import (
	"slices"
	"time"
)

// program is what Flags needs to know of a Standalone.
func (s *Standalone) program() *program {
	return &program{
		name: "standalone", document: s, sections: s.sections(), validate: s.validate,
		configUsage: "YAML `file` with the same settings as the flags; flags win",
	}
}

func (s *Standalone) sections() []section {
	return slices.Concat([]section{{"Storage", []setting{
		{"dataDir", "data-dir", &s.DataDir, nil,
			"`folder` of the objects, keys and certificates, and the administrator's kubeconfig; made if need be",
			"the disk has the objects, five minutes of history, and 64 MiB kept back for when it is full"},
		{"etcd.servers", "etcd-servers", &s.Etcd.Servers, nil,
			"`URLs` of an etcd cluster that keeps the objects instead of the data folder", ""},
		{"etcd.prefix", "etcd-prefix", &s.Etcd.Prefix, nil,
			"`prefix` of all keys in it", ""},
		{"etcd.caFile", "etcd-cafile", &s.Etcd.CAFile, nil,
			"PEM `file` with the CAs of its certificates", ""},
		{"etcd.certFile", "etcd-certfile", &s.Etcd.CertFile, nil,
			"PEM `file` of the client certificate for it", ""},
		{"etcd.keyFile", "etcd-keyfile", &s.Etcd.KeyFile, nil,
			"PEM `file` of that one's private key", ""},
	}}, {"Listening", slices.Concat([]setting{
		{"listen", "listen", &s.Listen, nil,
			"`host:port` of the API", ""},
		{"advertiseAddress", "advertise-address", &s.AdvertiseAddress, nil,
			"IP `address` at which others reach the API (default that of --listen, else the machine's)", ""},
	}, []setting{watchListCompressionSetting(&s.WatchListCompression)}, adminSettings(&s.AdminListen, &s.Profiling, &s.Console))},
		{"Certificates", tlsSettings(&s.TLS)}, s.authenticationSettings(), {"API", []setting{
			{"services.clusterIPRange", "service-cluster-ip-range", &s.Services.ClusterIPRange, nil,
				"`CIDR` of the cluster IPs of services, of 8 addresses at least and a million (/12) at most", ""},
			{"services.nodePortRange", "service-node-port-range", &s.Services.NodePortRange, nil,
				"`range` of node ports, from-to", ""},
			{"admission.enablePlugins", "enable-admission-plugins", &s.Admission.EnablePlugins, nil,
				"admission `plugins` that are on besides those that are by default", ""},
			{"admission.disablePlugins", "disable-admission-plugins", &s.Admission.DisablePlugins, nil,
				"admission `plugins` that are off though they are on by default", ""},
			{"eventTTL", "event-ttl", &s.EventTTL, atLeast(time.Second),
				"`time` for which events are kept",
				"the events of so long are on disk, and in memory where they are read"},
		}}},
		limitSettings(&s.Limits), []section{
			servingSettings(&s.Timeouts), auditSettings(&s.Audit, &s.Log), shutdownSettings(&s.Shutdown),
		})
}

func (s *Standalone) authenticationSettings() section {
	authn := &s.Authentication
	return section{"Authentication", []setting{
		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, nil,
			"let requests without credentials in as system:anonymous, who may see health and version only", ""},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, nil,
			"PEM `file` with CAs of client certificates besides the one in the data folder", ""},
		{"authentication.tokenAuthFile", "token-auth-file", &authn.TokenAuthFile, nil,
			"CSV `file` of bearer tokens: token,user,uid,\"group1,group2\"", ""},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, between(time.Millisecond, time.Hour),
			"`time` for which an accepted token is believed without looking again",
			"each token in use costs the check of a signature in this time"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, between(time.Millisecond, time.Hour),
			"`time` for which a refused token is refused without looking again", ""},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, between(1, 10_000_000),
			"`number` of tokens, and of certificates, remembered at most",
			"each has what the token says of its user in memory; a token that is not remembered is checked at each request"},
	}}
}
