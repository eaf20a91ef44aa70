package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Standalone configures `kubeweir standalone`. What ParseStandalone returns is valid.
type Standalone struct {
	// DataDir holds the objects (unless they are in etcd), keys and certificates, and
	// the administrator's kubeconfig. It is made if it does not exist.
	DataDir string `json:"dataDir"`
	// Listen is the host:port of the API.
	Listen string `json:"listen"`
	// AdminListen is the host:port of metrics, health and profiles; "" for none.
	AdminListen string `json:"adminListen"`
	// Profiling says whether AdminListen has /debug/pprof; "auto": on a loopback address.
	Profiling Profiling `json:"profiling"`
	// AdvertiseAddress is the IP address at which others reach the API, for the
	// endpoints of the service kubernetes; "" for that of Listen or else the machine's.
	AdvertiseAddress string `json:"advertiseAddress"`

	TLS            TLS                      `json:"tls"`
	Etcd           Etcd                     `json:"etcd"`
	Authentication StandaloneAuthentication `json:"authentication"`
	Services       Services                 `json:"services"`
	Admission      Admission                `json:"admission"`
	// EventTTL is how long events are kept.
	EventTTL time.Duration   `json:"eventTTL"`
	Limits   Limits          `json:"limits"`
	Timeouts ServingTimeouts `json:"timeouts"`
	Audit    Audit           `json:"audit"`
	Log      Log             `json:"log"`
	Shutdown Shutdown        `json:"shutdown"`
}

// Etcd says where objects are kept instead of in the data folder: in kube-apiserver's
// own layout, so that the same data can be served by either.
type Etcd struct {
	// Servers are the URLs of the cluster's members; none for no etcd.
	Servers []string `json:"servers"`
	// Prefix begins every key.
	Prefix string `json:"prefix"`
	// CAFile holds the CAs of etcd's certificates, CertFile and KeyFile the client
	// certificate and its key, PEM.
	CAFile   string `json:"caFile"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// StandaloneAuthentication says who is believed, besides the certificates and tokens
// that are issued here.
type StandaloneAuthentication struct {
	// Anonymous lets requests without credentials in as system:anonymous, who may see
	// health and version only.
	Anonymous bool `json:"anonymous"`
	// ClientCAFile holds more CAs of client certificates, PEM.
	ClientCAFile string `json:"clientCAFile"`
	// TokenAuthFile holds bearer tokens: lines of token,user,uid,"group1,group2".
	TokenAuthFile string `json:"tokenAuthFile"`
	// TokenTTL is how long an accepted token is believed without looking again,
	// TokenFailureTTL how long a refused one is refused.
	TokenTTL        time.Duration `json:"tokenTTL"`
	TokenFailureTTL time.Duration `json:"tokenFailureTTL"`
	// CacheSize bounds the tokens, and the certificates, that are remembered.
	CacheSize int `json:"cacheSize"`
}

// Services says what services get.
type Services struct {
	// ClusterIPRange is the CIDR of cluster IPs.
	ClusterIPRange string `json:"clusterIPRange"`
	// NodePortRange is "from-to", both inclusive.
	NodePortRange string `json:"nodePortRange"`
}

// Admission chooses admission plugins besides, or of, those that are on by default.
type Admission struct {
	EnablePlugins  []string `json:"enablePlugins"`
	DisablePlugins []string `json:"disablePlugins"`
}

// DefaultStandalone is the configuration without any file or flag.
func DefaultStandalone() *Standalone {
	return &Standalone{
		DataDir:     "kubeweir-data",
		Listen:      "127.0.0.1:6443",
		AdminListen: "127.0.0.1:9443",
		Profiling:   ProfilingAuto,
		Etcd:        Etcd{Prefix: "/registry"},
		Authentication: StandaloneAuthentication{
			Anonymous:       true,
			TokenTTL:        10 * time.Second,
			TokenFailureTTL: 2 * time.Second,
			CacheSize:       8192,
		},
		Services: Services{ClusterIPRange: "10.0.0.0/24", NodePortRange: "30000-32767"},
		EventTTL: time.Hour,
		Limits:   defaultLimits(),
		Timeouts: defaultServingTimeouts(),
		Audit:    defaultAudit(),
		Log:      defaultLog(),
		Shutdown: defaultShutdown(),
	}
}

// program is what ParseStandalone needs to know of a Standalone. All fields have a
// flag.
func (s *Standalone) program() *program {
	return &program{
		name: "standalone", document: s, settings: s.settings(), validate: s.validate,
		configUsage: "YAML `file` with the same settings as the flags; flags win",
		files: map[string]*string{
			"dataDir":                      &s.DataDir,
			"tls.certFile":                 &s.TLS.CertFile,
			"tls.privateKeyFile":           &s.TLS.PrivateKeyFile,
			"etcd.caFile":                  &s.Etcd.CAFile,
			"etcd.certFile":                &s.Etcd.CertFile,
			"etcd.keyFile":                 &s.Etcd.KeyFile,
			"authentication.clientCAFile":  &s.Authentication.ClientCAFile,
			"authentication.tokenAuthFile": &s.Authentication.TokenAuthFile,
			"audit.path":                   &s.Audit.Path,
		},
	}
}

func (s *Standalone) settings() []setting {
	authn := &s.Authentication
	return slices.Concat([]setting{
		{"dataDir", "data-dir", &s.DataDir, "`folder` of the objects, keys and certificates, and the administrator's kubeconfig; made if need be"},
		{"listen", "listen", &s.Listen, "`host:port` of the API"},
		{"adminListen", "admin-listen", &s.AdminListen, "`host:port` of metrics, health and profiles; \"\" for none"},
		{"profiling", "profiling", &s.Profiling, "whether the admin listener serves /debug/pprof (`choice`): true, false, or auto, which is true on a loopback address"},
		{"advertiseAddress", "advertise-address", &s.AdvertiseAddress, "IP `address` at which others reach the API (default that of --listen, else the machine's)"},
	}, tlsSettings(&s.TLS), []setting{
		{"etcd.servers", "etcd-servers", &s.Etcd.Servers, "`URLs` of an etcd cluster that keeps the objects instead of the data folder"},
		{"etcd.prefix", "etcd-prefix", &s.Etcd.Prefix, "`prefix` of all keys in it"},
		{"etcd.caFile", "etcd-cafile", &s.Etcd.CAFile, "PEM `file` with the CAs of its certificates"},
		{"etcd.certFile", "etcd-certfile", &s.Etcd.CertFile, "PEM `file` of the client certificate for it"},
		{"etcd.keyFile", "etcd-keyfile", &s.Etcd.KeyFile, "PEM `file` of that one's private key"},

		{"authentication.anonymous", "anonymous-auth", &authn.Anonymous, "let requests without credentials in as system:anonymous"},
		{"authentication.clientCAFile", "client-ca-file", &authn.ClientCAFile, "PEM `file` with CAs of client certificates besides the one in the data folder"},
		{"authentication.tokenAuthFile", "token-auth-file", &authn.TokenAuthFile, "CSV `file` of bearer tokens: token,user,uid,\"group1,group2\""},
		{"authentication.tokenTTL", "authentication-token-ttl", &authn.TokenTTL, "`time` for which an accepted token is believed without looking again"},
		{"authentication.tokenFailureTTL", "authentication-token-failure-ttl", &authn.TokenFailureTTL, "`time` for which a refused token is refused without looking again"},
		{"authentication.cacheSize", "authentication-cache-size", &authn.CacheSize, "`number` of tokens, and of certificates, remembered at most"},

		{"services.clusterIPRange", "service-cluster-ip-range", &s.Services.ClusterIPRange, "`CIDR` of the cluster IPs of services"},
		{"services.nodePortRange", "service-node-port-range", &s.Services.NodePortRange, "`range` of node ports, from-to"},
		{"admission.enablePlugins", "enable-admission-plugins", &s.Admission.EnablePlugins, "admission `plugins` that are on besides those that are by default"},
		{"admission.disablePlugins", "disable-admission-plugins", &s.Admission.DisablePlugins, "admission `plugins` that are off though they are on by default"},
		{"eventTTL", "event-ttl", &s.EventTTL, "`time` for which events are kept"},
	}, limitSettings(&s.Limits), servingSettings(&s.Timeouts), auditSettings(&s.Audit), logSettings(&s.Log), shutdownSettings(&s.Shutdown))
}

// validate returns the first thing that is wrong with s.
func (s *Standalone) validate(o *origins) error {
	return firstOf(o, s.checkAddresses,
		func(o *origins) error { return checkFiles(o, s.program().files) },
		func(o *origins) error { return checkTLS(o, &s.TLS) },
		s.checkEtcd, s.checkServices, s.checkAdmission,
		func(o *origins) error {
			return checkNumbers(o, &s.Limits, &s.Audit, count("authentication.cacheSize", s.Authentication.CacheSize, 1, 10_000_000))
		},
		func(o *origins) error {
			return checkDurations(o, &s.Limits, &s.Timeouts, &s.Shutdown,
				span{"authentication.tokenTTL", s.Authentication.TokenTTL, time.Millisecond, time.Hour},
				span{"authentication.tokenFailureTTL", s.Authentication.TokenFailureTTL, time.Millisecond, time.Hour},
				span{"eventTTL", s.EventTTL, time.Second, 0},
			)
		},
		func(o *origins) error { return checkAudit(o, &s.Audit) },
	)
}

func (s *Standalone) checkAddresses(o *origins) error {
	switch {
	case s.DataDir == "":
		return o.errorf("dataDir", "must name a folder")
	case s.Listen == "":
		return o.errorf("listen", "must not be empty; give a host:port such as 127.0.0.1:6443")
	}
	if s.AdvertiseAddress != "" {
		if ip, err := netip.ParseAddr(s.AdvertiseAddress); err != nil || ip.IsUnspecified() || ip.Zone() != "" {
			return o.errorf("advertiseAddress", "must be an IP address such as 192.0.2.1, not %q", s.AdvertiseAddress)
		}
	}
	return checkListeners(o, listener{"listen", s.Listen, checkHostPort}, listener{"adminListen", s.AdminListen, checkHostPort})
}

func (s *Standalone) checkEtcd(o *origins) error {
	e := &s.Etcd
	for i, server := range e.Servers {
		scheme, host, ok := strings.Cut(server, "://")
		if !ok || scheme != "http" && scheme != "https" || checkHostPort(host) != nil {
			return o.errorf(listPath(o, "etcd.servers", i), "must be a URL such as https://127.0.0.1:2379, not %q", short(server))
		}
	}
	switch {
	case !strings.HasPrefix(e.Prefix, "/") || strings.HasSuffix(e.Prefix, "/"):
		return o.errorf("etcd.prefix", "must begin with a slash and not end with one, as /registry does, not be %q", short(e.Prefix))
	case e.CertFile != "" && e.KeyFile == "":
		return o.errorf("etcd.certFile", "is set without %s; give both or none", o.name("etcd.keyFile"))
	case e.CertFile == "" && e.KeyFile != "":
		return o.errorf("etcd.keyFile", "is set without %s; give both or none", o.name("etcd.certFile"))
	}
	for _, f := range []struct{ path, file string }{{"etcd.caFile", e.CAFile}, {"etcd.certFile", e.CertFile}} {
		if f.file != "" && len(e.Servers) == 0 {
			return o.errorf(f.path, "has no effect without %s; set that too", o.name("etcd.servers"))
		}
	}
	return nil
}

// The smallest ranges that are of use: kube-apiserver has the same for cluster IPs.
const (
	leastServiceBits = 3
	mostServiceBits  = 20
)

func (s *Standalone) checkServices(o *origins) error {
	prefix, err := netip.ParsePrefix(s.Services.ClusterIPRange)
	if err != nil || prefix != prefix.Masked() {
		return o.errorf("services.clusterIPRange", "must be a CIDR such as 10.0.0.0/24, not %q", short(s.Services.ClusterIPRange))
	}
	if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < leastServiceBits || prefix.Addr().Is4() && bits > mostServiceBits {
		return o.errorf("services.clusterIPRange", "must have at least 8 addresses, and with IPv4 at most a million (/12), unlike %s", prefix)
	}
	if _, _, err := ParsePortRange(s.Services.NodePortRange); err != nil {
		return o.errorf("services.nodePortRange", "%w", err)
	}
	return nil
}

// ParsePortRange reads "from-to".
func ParsePortRange(text string) (from, to int, err error) {
	first, last, _ := strings.Cut(text, "-")
	from, err = strconv.Atoi(first)
	if err == nil {
		to, err = strconv.Atoi(last)
	}
	if err != nil || from < 1 || to < from || to > 65535 {
		return 0, 0, fmt.Errorf("must be a range of ports such as 30000-32767, not %q", short(text))
	}
	return from, to, nil
}

func (s *Standalone) checkAdmission(o *origins) error {
	for _, list := range []struct {
		path  string
		names []string
	}{{"admission.enablePlugins", s.Admission.EnablePlugins}, {"admission.disablePlugins", s.Admission.DisablePlugins}} {
		if i := slices.Index(list.names, ""); i >= 0 {
			return o.errorf(listPath(o, list.path, i), "must not be empty; name plugins, for instance LimitRanger")
		}
	}
	return nil
}
