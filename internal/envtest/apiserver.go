package envtest

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/kubenames"
)

// flagsText lists kube-apiserver's flags: name, bool or value, effect, the value if that is fixed, and
// the reason.
//
//go:embed flags.txt
var flagsText string

// Effect is what a flag of kube-apiserver does here.
type Effect string

// The effects. A flag that would change the server's behavior but is not implemented is rejected.
const (
	Honored  Effect = "honored"
	Ignored  Effect = "ignored"
	Rejected Effect = "rejected"
	// Fixed means that all values but one are rejected.
	Fixed Effect = "fixed"
)

// Flag is a flag of kube-apiserver.
type Flag struct {
	Name   string
	Bool   bool
	Effect Effect
	Value  string // the only one, if it is fixed
	Reason string // why it is rejected or fixed
}

// Flags returns kube-apiserver's flags, sorted by name.
func Flags() []Flag {
	var out []Flag
	for line := range strings.Lines(flagsText) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
		f := Flag{Name: fields[0], Bool: fields[1] == "bool", Effect: Effect(fields[2])}
		if len(fields) > 3 {
			f.Reason = fields[3]
		}
		if f.Effect == Fixed {
			f.Value, f.Reason, _ = strings.Cut(f.Reason, " ")
		}
		out = append(out, f)
	}
	return out
}

// check rejects a value that would be without effect.
func (f Flag) check(value string) error {
	switch {
	case f.Effect == Rejected && value != "" && value != "false":
		return fmt.Errorf("--%s is not supported: %s", f.Name, f.Reason)
	case f.Effect == Fixed && !f.isFixed(value):
		return fmt.Errorf("--%s must be %s, not %q: %s", f.Name, f.Value, value, f.Reason)
	}
	return nil
}

// isFixed reports whether a value is the only one, perhaps in another spelling such as 60s.
func (f Flag) isFixed(value string) bool {
	if b, err := strconv.ParseBool(value); f.Bool {
		return err == nil && strconv.FormatBool(b) == f.Value
	}
	d, err := time.ParseDuration(value)
	return value == f.Value || err == nil && d.String() == f.Value
}

// APIServer is a parsed command line of kube-apiserver.
type APIServer struct {
	// Config is the configuration of the standalone, with etcd as the store.
	Config *config.Standalone
	// OnlyPlugins are the only admission plugins to run, as --admission-control says; nil without it.
	OnlyPlugins []string
	// Further are settings that the standalone does not have.
	Further config.KubeAPIServer
	// FeatureGates are those of --feature-gates, as Gate=true.
	FeatureGates []string
	// Ignored are the given flags that have no effect.
	Ignored []string
}

// flagValues are the values of flags by name, in the order of the command line.
type flagValues map[string][]string

// last returns the last value of a flag.
func (g flagValues) last(name string) string {
	if values := g[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// list returns the values of a flag that can be repeated or separated by commas.
func (g flagValues) list(name string) (out []string) {
	for _, values := range g[name] {
		for v := range strings.SplitSeq(values, ",") {
			if v = strings.TrimSpace(v); v != "" {
				out = append(out, v)
			}
		}
	}
	return out
}

// ControllersVariable is the environment variable with the controllers that kube-apiserver runs.
const ControllersVariable = "KUBEWEIR_CONTROLLERS"

// ParseAPIServer parses the flags of kube-apiserver, and controllers, which is the value of
// ControllersVariable. An error names the flag or the variable.
func ParseAPIServer(args []string, controllers string) (*APIServer, error) {
	flags, err := parse(args)
	if err != nil {
		return nil, err
	}
	a := &APIServer{}
	for _, gate := range flags.list("feature-gates") {
		a.FeatureGates = append(a.FeatureGates, strings.TrimPrefix(gate, "kube:"))
	}
	if len(flags["admission-control"]) > 0 {
		if len(flags.list("enable-admission-plugins"))+len(flags.list("disable-admission-plugins")) > 0 {
			return nil, errors.New("--admission-control cannot be set together with --enable-admission-plugins or --disable-admission-plugins")
		}
		a.OnlyPlugins = append([]string{}, flags.list("admission-control")...) // kwokctl means none by an empty value
		for _, name := range a.OnlyPlugins {
			if known := kubenames.AdmissionPlugins(); !slices.Contains(known, name) {
				return nil, fmt.Errorf("--admission-control must name admission plugins, and there is no %q; there are %s", name, strings.Join(known, ", "))
			}
		}
	}
	if len(flags.list("etcd-servers")) == 0 {
		return nil, errors.New("--etcd-servers must be specified")
	}
	for _, f := range Flags() {
		if len(flags[f.Name]) == 0 {
			continue
		}
		if err := f.check(flags.last(f.Name)); err != nil {
			return nil, err
		}
		if f.Effect == Ignored {
			a.Ignored = append(a.Ignored, "--"+f.Name)
		}
	}
	settings, err := flags.settings()
	if err != nil {
		return nil, err
	}
	if a.Further, err = flags.further(); err != nil {
		return nil, err
	}
	if controllers = strings.ReplaceAll(controllers, " ", ""); controllers != "" {
		settings = append(settings, "--controllers="+controllers)
	}
	if a.Config, err = config.ParseStandalone(settings); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "--controllers", ControllersVariable))
	}
	return a, nil
}

// parse reads a command line.
func parse(args []string) (flagValues, error) {
	known := Flags()
	out := flagValues{}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, value, hasValue := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		if !isFlag {
			return nil, fmt.Errorf("unexpected argument %q: kube-apiserver takes flags only", args[i])
		}
		at := slices.IndexFunc(known, func(f Flag) bool { return f.Name == name })
		if at < 0 {
			var names []string
			for _, f := range known {
				names = append(names, f.Name)
			}
			if similar := config.Nearest(name, names); similar != "" {
				return nil, fmt.Errorf("--%s is not a flag of kube-apiserver; did you mean --%s?", name, similar)
			}
			return nil, fmt.Errorf("--%s is not a flag of kube-apiserver; see kube-apiserver --help", name)
		}
		switch {
		case hasValue:
		case known[at].Bool:
			value = "true"
		case i+1 < len(args):
			i++
			value = args[i]
		default:
			return nil, fmt.Errorf("--%s needs a value", name)
		}
		if _, err := strconv.ParseBool(value); known[at].Bool && err != nil {
			return nil, fmt.Errorf("--%s must be true or false, not %q", name, value)
		}
		out[name] = append(out[name], value)
	}
	return out, nil
}

// sameFlags are flags that a standalone has under the same name.
var sameFlags = []string{
	"advertise-address", "api-audiences", "audit-log-batch-buffer-size", "audit-log-batch-max-size", "audit-log-batch-max-wait",
	"audit-log-batch-throttle-burst", "audit-log-batch-throttle-qps", "audit-log-format", "audit-log-path",
	"audit-log-truncate-max-batch-size", "audit-log-truncate-max-event-size", "audit-webhook-batch-buffer-size",
	"audit-webhook-batch-max-size", "audit-webhook-batch-max-wait", "audit-webhook-batch-throttle-burst", "audit-webhook-batch-throttle-qps",
	"audit-webhook-config-file", "audit-webhook-initial-backoff", "audit-webhook-mode", "audit-webhook-truncate-max-batch-size",
	"audit-webhook-truncate-max-event-size", "authentication-config", "authentication-token-webhook-cache-ttl",
	"authentication-token-webhook-config-file", "authentication-token-webhook-version", "authorization-config",
	"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl", "authorization-webhook-config-file",
	"authorization-webhook-version", "client-ca-file", "disable-admission-plugins", "enable-admission-plugins", "enable-bootstrap-token-auth",
	"enable-priority-and-fairness",
	"encryption-provider-config", "encryption-provider-config-automatic-reload",
	"etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix", "etcd-servers", "event-ttl", "http2-max-streams-per-connection",
	"max-mutating-requests-inflight", "max-requests-inflight",
	"oidc-ca-file", "oidc-client-id", "oidc-groups-claim", "oidc-groups-prefix", "oidc-issuer-url", "oidc-required-claim",
	"oidc-signing-algs", "oidc-username-claim", "oidc-username-prefix",
	"service-account-key-file", "service-account-signing-key-file", "service-cluster-ip-range", "service-node-port-range",
	"tls-cert-file", "tls-cipher-suites", "tls-min-version", "tls-private-key-file", "token-auth-file", "tracing-config-file",
}

// retainAll is the highest number of audit logs to retain.
const retainAll = "10000"

// settings returns the flags of the standalone.
func (g flagValues) settings() ([]string, error) {
	bind, port := g.last("bind-address"), g.last("secure-port")
	if bind == "" {
		bind = "0.0.0.0"
	}
	if port == "" {
		port = "6443"
	}
	if _, err := netip.ParseAddr(bind); err != nil {
		return nil, fmt.Errorf("--bind-address must be an IP address, not %q", bind)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, fmt.Errorf("--secure-port must be a port, not %q", port)
	}
	out := []string{"--listen=" + net.JoinHostPort(bind, port), "--admin-listen=", "--shutdown-drain=0s",
		"--authentication-token-failure-ttl=1ms"} // kube-apiserver does not cache rejections
	for _, name := range sameFlags {
		for _, value := range g[name] {
			if value != "" {
				out = append(out, "--"+name+"="+value)
			}
		}
	}
	if issuers := g["service-account-issuer"]; len(issuers) > 0 {
		out = append(out, "--service-account-issuer="+issuers[0])
	}
	audit, err := g.audit()
	if err != nil {
		return nil, err
	}
	if g.last("authorization-config") != "" && len(g.list("authorization-mode")) > 0 {
		return nil, errors.New("--authorization-config cannot be set together with --authorization-mode")
	}
	return slices.Concat(out, audit, g.authorization(), g.certificate()), nil
}

// audit returns the settings of the audit log whose names, values or defaults differ.
func (g flagValues) audit() (out []string, err error) {
	for _, f := range []struct{ name, setting, standard, zero string }{
		{"audit-log-maxsize", "--audit-log-max-size=%dMi", "100", "--audit-log-max-size=0"},
		{"audit-log-maxbackup", "--audit-log-max-backups=%d", "100", "--audit-log-max-backups=" + retainAll},
		{"audit-log-maxage", "--audit-log-max-age=%d", "366", "--audit-log-max-age=0"},
	} {
		text := cmp.Or(g.last(f.name), f.standard)
		n, err := strconv.ParseUint(text, 10, 16)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--%s must be a number, not %q", f.name, text)
		case n == 0:
			out = append(out, f.zero)
		default:
			out = append(out, fmt.Sprintf(f.setting, n))
		}
	}
	for _, name := range []string{"audit-log-batch-throttle-enable", "audit-log-compress", "audit-log-truncate-enabled", "audit-webhook-batch-throttle-enable", "audit-webhook-truncate-enabled"} {
		if on, err := strconv.ParseBool(g.last(name)); err == nil {
			out = append(out, fmt.Sprintf("--%s=%t", name, on))
		}
	}
	out = append(out, "--audit-log-mode="+cmp.Or(g.last("audit-log-mode"), "blocking"))
	// Without a backend kube-apiserver records nothing, whatever the policy says.
	if policy := g.last("audit-policy-file"); policy != "" && g.last("audit-log-path")+g.last("audit-webhook-config-file") != "" {
		out = append(out, "--audit-policy-file="+policy)
	}
	return out, nil
}

// further returns the settings that the standalone does not have.
func (g flagValues) further() (config.KubeAPIServer, error) {
	k := config.KubeAPIServer{RuntimeConfig: g.list("runtime-config"), AnonymousIsSet: g.last("anonymous-auth") != ""}
	if issuers := g["service-account-issuer"]; len(issuers) > 1 {
		k.AcceptedIssuers = issuers[1:]
	}
	if slices.Contains(k.AcceptedIssuers, "") {
		return k, errors.New("--service-account-issuer must not be empty")
	}
	if text := g.last("service-account-max-token-expiration"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d != 0 && (d < time.Hour || d > 1<<32*time.Second) {
			return k, fmt.Errorf("--service-account-max-token-expiration must be a duration between 1h and 2^32 seconds, not %q", text)
		}
		k.MaxTokenExpiration = d
	}
	k.NoExtendedTokens = g.last("service-account-extend-token-expiration") == "false"
	k.JWKSURI = g.last("service-account-jwks-uri")
	if u, err := url.Parse(k.JWKSURI); k.JWKSURI != "" && (err != nil || u.Scheme != "https") {
		return k, fmt.Errorf("--service-account-jwks-uri must be a URL that begins with https://, not %q", k.JWKSURI)
	}
	switch kind := g.last("endpoint-reconciler-type"); kind {
	case "", "lease", "master-count":
	case "none":
		k.NoEndpoints = true
	default:
		return k, fmt.Errorf("--endpoint-reconciler-type must be lease, master-count or none, not %q", kind)
	}
	if text := g.last("etcd-compaction-interval"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return k, fmt.Errorf("--etcd-compaction-interval must be a duration such as 5m, or 0 for no compaction, not %q", text)
		}
		if k.HistoryAge = d; d == 0 {
			k.HistoryAge = -1
		}
	}
	k.PublishClientCAFile = true
	k.RequestHeader = config.RequestHeader{
		CAFile: g.last("requestheader-client-ca-file"), AllowedNames: g.list("requestheader-allowed-names"),
		UsernameHeaders: g.list("requestheader-username-headers"), UIDHeaders: g.list("requestheader-uid-headers"),
		GroupHeaders: g.list("requestheader-group-headers"), ExtraHeaderPrefixes: g.list("requestheader-extra-headers-prefix"),
	}
	k.ProxyClientCertFile, k.ProxyClientKeyFile = g.last("proxy-client-cert-file"), g.last("proxy-client-key-file")
	k.KubeletClientCertFile, k.KubeletClientKeyFile = g.last("kubelet-client-certificate"), g.last("kubelet-client-key")
	k.KubeletCAFile, k.KubeletAddressTypes = g.last("kubelet-certificate-authority"), g.list("kubelet-preferred-address-types")
	return k, errors.Join(
		g.checkPair("proxy-client-cert-file", "proxy-client-key-file"), g.checkPair("kubelet-client-certificate", "kubelet-client-key"),
		g.checkCA("kubelet-certificate-authority"), g.checkCA("requestheader-client-ca-file"), g.checkProxies())
}

// checkPair checks the flags of a certificate and its key.
func (g flagValues) checkPair(certFlag, keyFlag string) error {
	certFile, keyFile := g.last(certFlag), g.last(keyFlag)
	if certFile == "" && keyFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return fmt.Errorf("--%s and --%s must be files of a certificate and of its key: %w", certFlag, keyFlag, err)
	}
	return nil
}

// checkCA checks a flag of a file of certificates.
func (g flagValues) checkCA(name string) error {
	if g.last(name) == "" {
		return nil
	}
	if _, err := cert.CertsFromFile(g.last(name)); err != nil {
		return fmt.Errorf("--%s must be a file of certificates: %w", name, err)
	}
	return nil
}

// checkProxies rejects front proxies without names whose certificates have the CA of all clients: any client
// could name any user.
func (g flagValues) checkProxies() error {
	proxies, _ := cert.CertsFromFile(g.last("requestheader-client-ca-file"))
	clients, _ := cert.CertsFromFile(g.last("client-ca-file"))
	if len(g.list("requestheader-allowed-names")) > 0 || !slices.ContainsFunc(proxies, func(p *x509.Certificate) bool {
		return slices.ContainsFunc(clients, p.Equal)
	}) {
		return nil
	}
	return errors.New("--requestheader-allowed-names must be set, because --requestheader-client-ca-file and --client-ca-file have a certificate in common")
}

// authorization translates --authorization-mode and --anonymous-auth. As in kube-apiserver, the
// default mode is AlwaysAllow, which does not accept anonymous requests.
func (g flagValues) authorization() (out []string) {
	modes, anonymous := g.list("authorization-mode"), g.last("anonymous-auth")
	if len(modes) == 0 && g.last("authorization-config") == "" {
		modes = []string{config.AuthorizeAlways}
	}
	if slices.Contains(modes, config.AuthorizeAlways) {
		anonymous = "false"
	}
	if len(modes) > 0 {
		out = append(out, "--authorization-mode="+strings.Join(modes, ","))
	}
	if anonymous != "" {
		out = append(out, "--anonymous-auth="+anonymous)
	}
	return out
}

// certificate returns the certificate in --cert-dir, unless --tls-cert-file names another one.
func (g flagValues) certificate() []string {
	dir := g.last("cert-dir")
	if dir == "" || g.last("tls-cert-file") != "" {
		return nil
	}
	cert, key := filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key")
	for _, file := range []string{cert, key} {
		if _, err := os.Stat(file); err != nil {
			return nil // a certificate is generated
		}
	}
	return []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key}
}
