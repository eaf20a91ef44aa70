package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/kubeconfig"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
)

// Options say which upstream a Client talks to, and how.
type Options struct {
	// Kubeconfig is the path of a kubeconfig and Context the name of one of its
	// contexts, "" for the current one. Without Kubeconfig and Config the
	// in-cluster configuration is used.
	Kubeconfig, Context string
	// Config is used instead of Kubeconfig when set. It is not modified. Its
	// limits (QPS, Timeout) do not count, nor does its Transport.
	Config *rest.Config
	// Name is that of the cluster where there are several.
	Name string
	// InProcess is used instead of both when set: the upstream is a part of this
	// process.
	InProcess *InProcess
	// Servers are the API servers of the cluster, with the credentials and the CA that the
	// kubeconfig has for its server: their addresses (https://host:port), or one
	// "dns:///name:port", or "endpointslices" for the endpoints of the Service kubernetes.
	// Empty: the kubeconfig's server alone.
	Servers []string
	// Resolver is asked for the name among Servers; nil for net.DefaultResolver.
	Resolver balance.Resolver
	// UserAgent of the gateway's own requests; "kubeweir" by default. Forwarded
	// requests keep their client's.
	UserAgent string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that none are exposed. For more
	// than one upstream wrap it with a label.
	Registerer prometheus.Registerer
	// Compression says whether lists for the cache are asked for in gzip.
	Compression Compression
	Limits      Limits

	dial func(ctx context.Context, network, address string) (net.Conn, error) // instead of a net.Dialer's, in tests
}

// Compression of lists for the cache. Watches are not asked for in gzip, which
// kube-apiserver has since 1.37 only.
type Compression string

// With CompressAuto lists are compressed unless the upstream is on this machine,
// where the bytes cost less than the compression.
const (
	CompressAuto   Compression = ""
	CompressAlways Compression = "always"
	CompressNever  Compression = "never"
)

// Limits bound what the upstream and clients may cost. A zero field means its
// default (package defaults, but for the last two).
type Limits struct {
	// DialTimeout bounds connecting, and once more the TLS handshake.
	DialTimeout time.Duration
	// RequestTimeout bounds the time to the response head, for all requests but
	// long-running ones.
	RequestTimeout time.Duration
	// SilenceTimeout is how long an upstream that is waited for may give no sign of life,
	// on whatever connection, before it counts as gone.
	SilenceTimeout time.Duration
	// ServerCheck is how often each of several servers is asked whether it is ready,
	// default 1 s. ServerSilence is how long one of them may give no sign of life before
	// what waits for it goes to another, default 2 s.
	ServerCheck, ServerSilence time.Duration
	// StallTimeout ends a response that is not long-running when its body stands
	// still for so long.
	StallTimeout time.Duration
	// PingInterval is the silence after which an HTTP/2 connection of feeds is
	// pinged; it bounds the age of Source.LastContact while all is well. PingTimeout
	// is how long there may be neither an answer nor anything else before the connection is
	// given up, also on all other HTTP/2 connections.
	PingInterval, PingTimeout time.Duration
	// FeedReadTimeout is the silence after which the connection of a watch is
	// given up where there are no pings, over HTTP/1.1.
	FeedReadTimeout time.Duration
	// MaxObjectBytes bounds one object of a list or watch.
	MaxObjectBytes int
	// UpgradeLinger is how long an upgraded connection lives on after one side
	// has ended its half of it. Default 10 s.
	UpgradeLinger time.Duration
	// CredentialCheck is how often certificate files are looked at for changes.
	// Default 1 min. Token files are read anew every minute by client-go.
	CredentialCheck time.Duration
}

func (l *Limits) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&l.DialTimeout, defaults.UpstreamDialTimeout},
		{&l.RequestTimeout, defaults.UpstreamRequestTimeout},
		{&l.SilenceTimeout, defaults.UpstreamSilenceTimeout},
		{&l.StallTimeout, defaults.UpstreamStallTimeout},
		{&l.PingInterval, defaults.UpstreamPingInterval},
		{&l.PingTimeout, defaults.UpstreamPingTimeout},
		{&l.FeedReadTimeout, defaults.FeedReadTimeout},
		{&l.UpgradeLinger, 10 * time.Second},
		{&l.CredentialCheck, time.Minute},
		{&l.ServerCheck, defaults.UpstreamServerCheck},
		{&l.ServerSilence, defaults.UpstreamServerSilence},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if l.MaxObjectBytes <= 0 {
		l.MaxObjectBytes = defaults.MaxObjectBytes
	}
}

// restConfig loads the configuration that the options name.
func (o *Options) restConfig() (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	switch {
	case o.Config != nil:
		cfg = rest.CopyConfig(o.Config)
	case o.Kubeconfig == "":
		cfg, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no kubeconfig is given, and this is not a pod with a service account")
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no kubeconfig is given, and the token of the pod's service account is not mounted (automountServiceAccountToken): %w", err)
		}
	default:
		cfg, err = kubeconfig.Load(o.Kubeconfig, o.Context)
	}
	if err != nil {
		return nil, fmt.Errorf("upstream configuration: %w", err)
	}
	if cfg.Transport != nil {
		return nil, errors.New("upstream configuration: a custom transport is not supported")
	}
	if cfg.ExecProvider != nil {
		cfg.ExecProvider = cfg.ExecProvider.DeepCopy()
		cfg.ExecProvider.StdinUnavailable = true
		if o.Name != "" {
			// client-go has one plugin for all configurations that are the same. A cluster that answers 401 would have
			// those of others called again, and their connections closed.
			cfg.ExecProvider.StdinUnavailableMessage = "the plugin is that of the cluster " + o.Name
		}
		if cfg.ExecProvider.InteractiveMode == "" {
			cfg.ExecProvider.InteractiveMode = clientcmdapi.IfAvailableExecInteractiveMode
		}
	}
	// Absent User-Agents of clients stay absent, and nothing is decompressed.
	cfg.UserAgent, cfg.DisableCompression, cfg.NextProtos = "", true, nil
	return cfg, nil
}

// compresses decides Compression for the server at base.
func (c Compression) compresses(base *url.URL) bool {
	switch c {
	case CompressAlways:
		return true
	case CompressNever:
		return false
	}
	host := base.Hostname()
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
