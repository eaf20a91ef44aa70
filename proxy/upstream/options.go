package upstream

import (
	"cmp"
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

// Options determine which upstream a Client talks to, and how.
type Options struct {
	// Kubeconfig is the path of a kubeconfig and Context the name of one of its contexts, "" for the
	// current one. Without Kubeconfig and Config the in-cluster configuration is used.
	Kubeconfig, Context string
	// Config is used instead of Kubeconfig when set. It is not modified. Its QPS, Timeout and
	// Transport are ignored.
	Config *rest.Config
	// Name is the name of the cluster if there are several.
	Name string
	// InProcess is used instead of both when set: the upstream is in this process.
	InProcess *InProcess
	// Servers are the API servers of the cluster, which share the credentials and the CA of the
	// kubeconfig: their addresses (https://host:port), or one "dns:///name:port", or "endpointslices"
	// for the endpoints of the Service kubernetes. Empty: the kubeconfig's server alone.
	Servers []string
	// Resolver resolves the name in Servers; nil for net.DefaultResolver.
	Resolver balance.Resolver
	// UserAgent of the gateway's own requests, "kubeweir" by default. Forwarded requests keep their
	// client's.
	UserAgent string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that none are exposed. For more than one upstream wrap
	// it with a label.
	Registerer prometheus.Registerer
	// Compress requests lists in gzip also from an upstream on this machine. Watches are never
	// compressed: kube-apiserver offers that since 1.37 only.
	Compress bool
	Limits   Limits

	dial func(ctx context.Context, network, address string) (net.Conn, error) // instead of a net.Dialer's, in tests
}

// Limits bound what the upstream and clients may cost. A zero field means its default (package
// defaults).
type Limits struct {
	// DialTimeout bounds connecting, and once more the TLS handshake.
	DialTimeout time.Duration
	// RequestTimeout bounds the time to the head of the response, for all requests but long-running
	// ones.
	RequestTimeout time.Duration
	// SilenceTimeout is how long an upstream that is waited for may give no sign of life, on any
	// connection, before it counts as failed.
	SilenceTimeout time.Duration
	// ServerCheck is how often each of several servers is checked, default 1 s. ServerSilence is how
	// long one of them may give no sign of life before requests that wait for it go to another,
	// default 2 s.
	ServerCheck, ServerSilence time.Duration
	// StallTimeout ends a response that is not long-running when its body stalls for so long.
	StallTimeout time.Duration
	// PingInterval is the silence after which a feed connection over HTTP/2 is pinged; it bounds the
	// age of Source.LastContact while all is well. PingTimeout is how long an HTTP/2 connection may
	// bring nothing after a ping before it is closed.
	PingInterval, PingTimeout time.Duration
	// FeedReadTimeout is the silence after which the connection of a watch is closed where there are
	// no pings, over HTTP/1.1.
	FeedReadTimeout time.Duration
	// MaxObjectBytes bounds one object of a list or watch.
	MaxObjectBytes int
	// UpgradeLinger is how long an upgraded connection lives on after one side has closed its half.
	// Default 10 s.
	UpgradeLinger time.Duration
}

func (l *Limits) setDefaults() {
	l.DialTimeout = cmp.Or(l.DialTimeout, defaults.UpstreamDialTimeout)
	l.RequestTimeout = cmp.Or(l.RequestTimeout, defaults.UpstreamRequestTimeout)
	l.SilenceTimeout = cmp.Or(l.SilenceTimeout, defaults.UpstreamSilenceTimeout)
	l.StallTimeout = cmp.Or(l.StallTimeout, defaults.UpstreamStallTimeout)
	l.PingInterval = cmp.Or(l.PingInterval, defaults.UpstreamPingInterval)
	l.PingTimeout = cmp.Or(l.PingTimeout, defaults.UpstreamPingTimeout)
	l.FeedReadTimeout = cmp.Or(l.FeedReadTimeout, defaults.FeedReadTimeout)
	l.UpgradeLinger = cmp.Or(l.UpgradeLinger, 10*time.Second)
	l.ServerCheck = cmp.Or(l.ServerCheck, defaults.UpstreamServerCheck)
	l.ServerSilence = cmp.Or(l.ServerSilence, defaults.UpstreamServerSilence)
	l.MaxObjectBytes = cmp.Or(l.MaxObjectBytes, defaults.MaxObjectBytes)
}

// restConfig loads the configuration named by the options.
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
			// client-go shares one plugin between equal configurations. A cluster that responds 401 would
			// have the plugins of others called again, and their connections closed.
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

// isLocal reports whether the server at base is on this machine, where bytes cost less than
// compression.
func isLocal(base *url.URL) bool {
	host := base.Hostname()
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
