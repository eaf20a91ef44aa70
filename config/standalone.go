package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/kubenames"
)

// Standalone configures `kubeweir standalone`. ParseStandalone returns only valid configurations.
// Its sections describe the fields.
type Standalone struct {
	DataDir              string    `json:"dataDir"`
	Listen               string    `json:"listen"`
	AdminListen          string    `json:"adminListen"`
	Profiling            Profiling `json:"profiling"`
	Console              Console   `json:"console"`
	WatchListCompression bool      `json:"watchListCompression"`
	AdvertiseAddress     string    `json:"advertiseAddress"`

	TLS                 TLS                      `json:"tls"`
	Etcd                Etcd                     `json:"etcd"`
	Encryption          Encryption               `json:"encryption"`
	Authentication      StandaloneAuthentication `json:"authentication"`
	Authorization       StandaloneAuthorization  `json:"authorization"`
	Services            Services                 `json:"services"`
	Admission           Admission                `json:"admission"`
	Controllers         []string                 `json:"controllers"`
	Scheduler           bool                     `json:"scheduler"`
	FakeNodes           int                      `json:"fakeNodes"`
	EventTTL            time.Duration            `json:"eventTTL"`
	PriorityAndFairness PriorityAndFairness      `json:"priorityAndFairness"`
	Limits              Limits                   `json:"limits"`
	Timeouts            ServingTimeouts          `json:"timeouts"`
	Audit               Audit                    `json:"audit"`
	Tracing             Tracing                  `json:"tracing"`
	Log                 Log                      `json:"log"`
	Shutdown            Shutdown                 `json:"shutdown"`
}

// Etcd configures etcd as the store instead of the data folder. The layout is kube-apiserver's, so
// that both can serve the same data.
type Etcd struct {
	Servers  []string `json:"servers"`
	Prefix   string   `json:"prefix"`
	CAFile   string   `json:"caFile"`
	CertFile string   `json:"certFile"`
	KeyFile  string   `json:"keyFile"`
}

// PriorityAndFairness configures how many requests are served at a time, and which of the others wait.
type PriorityAndFairness struct {
	Enabled                     bool `json:"enabled"`
	MaxRequestsInFlight         int  `json:"maxRequestsInFlight"`
	MaxMutatingRequestsInFlight int  `json:"maxMutatingRequestsInFlight"`
}

// Encryption configures the encryption of objects at rest.
type Encryption struct {
	ProviderConfigFile string `json:"providerConfigFile"`
	AutomaticReload    bool   `json:"automaticReload"`
}

// StandaloneAuthentication configures authentication in addition to the certificates and tokens
// that the server issues.
type StandaloneAuthentication struct {
	Anonymous       bool          `json:"anonymous"`
	ClientCAFile    string        `json:"clientCAFile"`
	TokenAuthFile   string        `json:"tokenAuthFile"`
	ConfigFile      string        `json:"configFile"`
	BootstrapTokens bool          `json:"bootstrapTokens"`
	TokenTTL        time.Duration `json:"tokenTTL"`
	TokenFailureTTL time.Duration `json:"tokenFailureTTL"`
	CacheSize       int           `json:"cacheSize"`

	OIDC            OIDC            `json:"oidc"`
	Webhook         TokenWebhook    `json:"webhook"`
	ServiceAccounts ServiceAccounts `json:"serviceAccounts"`
}

// OIDC accepts the tokens of an OpenID Connect issuer.
type OIDC struct {
	IssuerURL      string   `json:"issuerURL"`
	ClientID       string   `json:"clientID"`
	CAFile         string   `json:"caFile"`
	UsernameClaim  string   `json:"usernameClaim"`
	UsernamePrefix string   `json:"usernamePrefix"`
	GroupsClaim    string   `json:"groupsClaim"`
	GroupsPrefix   string   `json:"groupsPrefix"`
	SigningAlgs    []string `json:"signingAlgs"`
	RequiredClaims []string `json:"requiredClaims"`
}

// Required returns RequiredClaims by name. ok is false if one is not of the form claim=value.
func (o *OIDC) Required() (claims map[string]string, ok bool) {
	for _, text := range o.RequiredClaims {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, false
		}
		if claims == nil {
			claims = make(map[string]string)
		}
		claims[name] = value
	}
	return claims, true
}

// TokenWebhook has a webhook review tokens that nothing else accepts.
type TokenWebhook struct {
	ConfigFile string        `json:"configFile"`
	Version    string        `json:"version"`
	CacheTTL   time.Duration `json:"cacheTTL"`
}

// ServiceAccounts configures the tokens of service accounts.
type ServiceAccounts struct {
	Issuer         string   `json:"issuer"`
	Audiences      []string `json:"audiences"`
	SigningKeyFile string   `json:"signingKeyFile"`
	KeyFiles       []string `json:"keyFiles"`
}

// StandaloneAuthorization configures who may do what.
type StandaloneAuthorization struct {
	Mode       string               `json:"mode"`
	ConfigFile string               `json:"configFile"`
	Webhook    AuthorizationWebhook `json:"webhook"`
}

// AuthorizationWebhook is the webhook of AuthorizeWebhook.
type AuthorizationWebhook struct {
	ConfigFile      string        `json:"configFile"`
	Version         string        `json:"version"`
	AuthorizedTTL   time.Duration `json:"authorizedTTL"`
	UnauthorizedTTL time.Duration `json:"unauthorizedTTL"`
}

// The authorization modes, with kube-apiserver's names.
const (
	AuthorizeRBAC    = "RBAC"
	AuthorizeNodes   = "Node,RBAC"
	AuthorizeAlways  = "AlwaysAllow"
	AuthorizeWebhook = "Webhook"
)

// Modes returns the modes of Mode, in their order.
func (a *StandaloneAuthorization) Modes() []string { return strings.Split(a.Mode, ",") }

// Services are the ranges of cluster IPs and node ports.
type Services struct {
	ClusterIPRange string `json:"clusterIPRange"`
	NodePortRange  string `json:"nodePortRange"`
}

// Admission enables and disables admission plugins.
type Admission struct {
	EnablePlugins  []string `json:"enablePlugins"`
	DisablePlugins []string `json:"disablePlugins"`
}

// DefaultStandalone returns the configuration without any file or flag.
func DefaultStandalone() *Standalone {
	return &Standalone{
		DataDir:              "kubeweir-data",
		Listen:               "127.0.0.1:6443",
		AdminListen:          "127.0.0.1:9443",
		Profiling:            ProfilingAuto,
		Console:              defaultConsole(),
		WatchListCompression: true,
		TLS:                  TLS{MinVersion: TLS12},
		Etcd:                 Etcd{Prefix: "/registry"},
		Authentication: StandaloneAuthentication{
			Anonymous:       true,
			TokenTTL:        defaults.TokenTTL,
			TokenFailureTTL: defaults.TokenFailureTTL,
			CacheSize:       defaults.TokenCacheSize,
			OIDC:            OIDC{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
			Webhook:         TokenWebhook{Version: "v1beta1", CacheTTL: 2 * time.Minute},
			ServiceAccounts: ServiceAccounts{Issuer: "https://kubernetes.default.svc.cluster.local"},
		},
		Authorization: StandaloneAuthorization{Mode: AuthorizeRBAC, Webhook: AuthorizationWebhook{
			Version: "v1beta1", AuthorizedTTL: 5 * time.Minute, UnauthorizedTTL: 30 * time.Second,
		}},
		Services:            Services{ClusterIPRange: "10.0.0.0/24", NodePortRange: "30000-32767"},
		PriorityAndFairness: PriorityAndFairness{Enabled: true, MaxRequestsInFlight: 400, MaxMutatingRequestsInFlight: 200},
		EventTTL:            time.Hour,
		Limits:              standaloneLimits(),
		Timeouts:            defaultServingTimeouts(),
		Audit:               defaultAudit(),
		Log:                 defaultLog(),
		Shutdown:            defaultShutdown(),
	}
}

// standaloneLimits admit more requests than the queues of a priority level hold (128 of 50), and those served: otherwise
// those that wait would lock out levels with free seats.
func standaloneLimits() Limits {
	l := defaultLimits()
	l.MaxInFlight = 8000
	return l
}

// validate reports errors in s, except for numbers out of bounds.
func (s *Standalone) validate(o *origins) {
	s.checkAddresses(o)
	checkTLS(o, &s.TLS)
	checkCAs(o, certFile{"authentication.clientCAFile", s.Authentication.ClientCAFile})
	s.checkEtcd(o)
	s.checkEncryption(o)
	s.checkServiceAccounts(o)
	s.checkAuthentication(o)
	s.checkAuthorization(o)
	s.checkServices(o)
	s.checkNames(o)
	if p := &s.PriorityAndFairness; p.Enabled && p.MaxRequestsInFlight == 0 && p.MaxMutatingRequestsInFlight == 0 {
		o.report("priorityAndFairness.maxRequestsInFlight", "and %s must not both be 0; set one of them, or %s to false",
			o.name("priorityAndFairness.maxMutatingRequestsInFlight"), o.name("priorityAndFairness.enabled"))
	}
	checkAudit(o, &s.Audit)
	checkTracing(o, &s.Tracing)
}

func (s *Standalone) checkAddresses(o *origins) {
	if s.DataDir == "" {
		o.report("dataDir", "must name a folder")
	}
	if s.Listen == "" {
		o.report("listen", "must not be empty; give a host:port such as 127.0.0.1:6443")
	}
	if s.AdvertiseAddress != "" {
		if ip, err := netip.ParseAddr(s.AdvertiseAddress); err != nil || ip.IsUnspecified() || ip.Zone() != "" {
			o.report("advertiseAddress", "must be an IP address such as 192.0.2.1, not %q", short(s.AdvertiseAddress))
		}
	}
	checkListeners(o, listener{"listen", s.Listen, checkHostPort}, listener{"adminListen", s.AdminListen, checkHostPort})
}

func (s *Standalone) checkEtcd(o *origins) {
	e := &s.Etcd
	for i, server := range e.Servers {
		scheme, host, ok := strings.Cut(server, "://")
		if !ok || scheme != "http" && scheme != "https" || checkHostPort(host) != nil {
			o.report(listPath(o, "etcd.servers", i), "must be a URL such as https://127.0.0.1:2379, not %q", short(server))
		}
	}
	if !strings.HasPrefix(e.Prefix, "/") || strings.HasSuffix(e.Prefix, "/") {
		o.report("etcd.prefix", "must begin with a slash and not end with one, as /registry does, not be %q", short(e.Prefix))
	}
	checkCAs(o, certFile{"etcd.caFile", e.CAFile})
	checkPair(o, certFile{"etcd.certFile", e.CertFile}, certFile{"etcd.keyFile", e.KeyFile})
	for _, f := range []struct{ path, file string }{{"etcd.caFile", e.CAFile}, {"etcd.certFile", e.CertFile}} {
		if f.file != "" && len(e.Servers) == 0 {
			o.report(f.path, "has no effect without %s; set that too", o.name("etcd.servers"))
		}
	}
}

func (s *Standalone) checkEncryption(o *origins) {
	if s.Encryption.AutomaticReload && s.Encryption.ProviderConfigFile == "" {
		o.report("encryption.automaticReload", "has no effect without %s; set that too", o.name("encryption.providerConfigFile"))
	}
}

func (s *Standalone) checkServiceAccounts(o *origins) {
	a := &s.Authentication.ServiceAccounts
	if a.Issuer == "" {
		o.report("authentication.serviceAccounts.issuer", "must not be empty; give a URL such as https://kubernetes.default.svc")
	}
	var public []certFile
	for i, file := range a.KeyFiles {
		public = append(public, certFile{listPath(o, "authentication.serviceAccounts.keyFiles", i), file})
	}
	checkKeys(o, certFile{"authentication.serviceAccounts.signingKeyFile", a.SigningKeyFile}, public...)
}

func (s *Standalone) checkAuthorization(o *origins) {
	a := &s.Authorization
	modes, known := a.Modes(), []string{"RBAC", "Node", "Webhook", "AlwaysAllow", "AlwaysDeny"}
	for i, mode := range modes {
		switch {
		case !slices.Contains(known, mode):
			o.report("authorization.mode", "must be of %s, not %q", strings.Join(known, ", "), short(mode))
			return
		case slices.Contains(modes[:i], mode):
			o.report("authorization.mode", "must name %s only once", mode)
			return
		}
	}
	if slices.Contains(modes, AuthorizeAlways) && s.Authentication.Anonymous {
		o.report("authorization.mode", "AlwaysAllow would allow everything to everybody; set %s to false", o.name("authentication.anonymous"))
	}
	hasWebhook := slices.Contains(modes, AuthorizeWebhook)
	switch {
	case a.ConfigFile != "" && (a.Mode != AuthorizeRBAC || a.Webhook != DefaultStandalone().Authorization.Webhook):
		o.report("authorization.configFile", "cannot be set together with %s or the settings of its webhook; name the modes in the file", o.name("authorization.mode"))
	case hasWebhook && a.Webhook.ConfigFile == "":
		o.report("authorization.mode", "needs %s, because it has the mode Webhook", o.name("authorization.webhook.configFile"))
	case !hasWebhook && a.Webhook.ConfigFile != "":
		o.report("authorization.webhook.configFile", "has no effect without the mode Webhook; add it to %s", o.name("authorization.mode"))
	}
	checkWebhookVersion(o, "authorization.webhook.version", a.Webhook.Version)
}

// checkAuthentication checks authenticators of others. The server checks the content of their files.
func (s *Standalone) checkAuthentication(o *origins) {
	a := &s.Authentication
	checkCAs(o, certFile{"authentication.oidc.caFile", a.OIDC.CAFile})
	if (a.OIDC.IssuerURL == "" || a.OIDC.ClientID == "") && fmt.Sprint(a.OIDC) != fmt.Sprint(DefaultStandalone().Authentication.OIDC) {
		path, missing := "authentication.oidc.issuerURL", "authentication.oidc.clientID"
		if a.OIDC.IssuerURL == "" {
			path, missing = missing, path
		}
		o.report(path, "and the other settings of the issuer have no effect without %s; set that too", o.name(missing))
	}
	if u, err := url.Parse(a.OIDC.IssuerURL); a.OIDC.IssuerURL != "" && (err != nil || u.Scheme != "https") {
		o.report("authentication.oidc.issuerURL", "must be a URL such as https://issuer.example, not %q", short(a.OIDC.IssuerURL))
	}
	if a.OIDC.IssuerURL != "" && a.ConfigFile != "" {
		o.report("authentication.configFile", "cannot be set together with %s; name the issuer in the file", o.name("authentication.oidc.issuerURL"))
	}
	if _, ok := a.OIDC.Required(); !ok {
		o.report("authentication.oidc.requiredClaims", "must be claims with their values, such as team=storage")
	}
	checkWebhookVersion(o, "authentication.webhook.version", a.Webhook.Version)
}

func checkWebhookVersion(o *origins, path, version string) {
	if version != "v1" && version != "v1beta1" {
		o.report(path, "must be v1 or v1beta1, not %q", short(version))
	}
}

// The smallest useful ranges; kube-apiserver has the same for cluster IPs.
const (
	leastServiceBits = 3
	mostServiceBits  = 20
)

func (s *Standalone) checkServices(o *origins) {
	if _, err := ParseServiceRanges(s.Services.ClusterIPRange); err != nil {
		o.report("services.clusterIPRange", "%w", err)
	}
	if _, _, err := ParsePortRange(s.Services.NodePortRange); err != nil {
		o.report("services.nodePortRange", "%w", err)
	}
}

// ParseServiceRanges reads one CIDR, or one of IPv4 and one of IPv6, separated by a comma.
func ParseServiceRanges(text string) (ranges []netip.Prefix, err error) {
	for cidr := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("must be a CIDR such as 10.0.0.0/24, or two such as 10.0.0.0/24,fd00::/108, not %q", short(text))
		}
		if bits := prefix.Addr().BitLen() - prefix.Bits(); bits < leastServiceBits || prefix.Addr().Is4() && bits > mostServiceBits {
			return nil, fmt.Errorf("must have at least 8 addresses, and with IPv4 at most a million (/12), unlike %s", prefix)
		}
		ranges = append(ranges, prefix)
	}
	if len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("must be one CIDR, or one of IPv4 and one of IPv6, not %q", short(text))
	}
	return ranges, nil
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

const (
	namesOfPlugins     = "--enable-admission-plugins in kube-apiserver --help"
	namesOfControllers = "--controllers in kube-controller-manager --help"
)

func (s *Standalone) checkNames(o *origins) {
	for _, list := range []struct {
		path   string
		values []string
		what   string
		known  []string
		names  string // where they are listed
		advice string
	}{
		{"admission.enablePlugins", s.Admission.EnablePlugins, "admission plugin", kubenames.AdmissionPlugins(), namesOfPlugins, "name plugins, for instance LimitRanger"},
		{"admission.disablePlugins", s.Admission.DisablePlugins, "admission plugin", kubenames.AdmissionPlugins(), namesOfPlugins, "name plugins, for instance LimitRanger"},
		{"controllers", s.Controllers, "controller", append(kubenames.Controllers(), "*"), namesOfControllers, "name controllers, for instance namespace"},
	} {
		for i, name := range list.values {
			if list.path == "controllers" {
				name = strings.TrimPrefix(name, "-")
			}
			switch similar := Nearest(name, list.known); {
			case name == "":
				o.report(listPath(o, list.path, i), "must not be empty; %s", list.advice)
			case slices.Contains(list.known, name):
			case similar != "":
				o.report(listPath(o, list.path, i), "must name %ss, and there is no %q; did you mean %q?", list.what, short(name), similar)
			default:
				o.report(listPath(o, list.path, i), "must name %ss, and there is no %q; see %s", list.what, short(name), list.names)
			}
		}
	}
	for i, name := range s.Admission.DisablePlugins {
		if slices.Contains(s.Admission.EnablePlugins, name) {
			o.report(listPath(o, "admission.disablePlugins", i), "must not name %s, which %s enables", name, o.name("admission.enablePlugins"))
		}
	}
}
