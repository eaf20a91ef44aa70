package pool

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubeweir/kubeweir/internal/credentials"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

const (
	// MaxHTTP1 is how many requests at a time may have an HTTP/1.1 connection of their own.
	MaxHTTP1 = 32
	// http1Idle is how long an unused connection stays open. kube-apiserver closes idle connections
	// after 90 s. A write that meets the close of a connection fails, so this end is the first to
	// close.
	http1Idle = 30 * time.Second
)

// Options determine how connections are made.
type Options struct {
	// Dial connects, unless the rest.Config has its own; nil for a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout bounds connecting, and once more the TLS handshake.
	DialTimeout time.Duration
	// MaxSends is how often net/http may send one request.
	MaxSends int
	// PingTimeout bounds the wait for the answer to a ping, or for any other byte.
	PingTimeout time.Duration
	// CredentialTimeout bounds the wait for an exec plugin.
	CredentialTimeout time.Duration
	Log               *slog.Logger
	// Conns tracks the HTTP/2 connections, which go to Server.
	Conns  *health.Conns
	Server *health.Server
}

// Factory makes the connections to one server.
type Factory struct {
	// own is never passed to client-go itself: that would load files into it, and later changes of the
	// files would go unseen.
	own   transport.Config
	base  *url.URL
	opts  Options
	proxy func(*http.Request) (*url.URL, error)
	// plugin is the exec plugin, nil if there is none.
	plugin *credentials.Plugin
}

// Style is what tells the connections to one server apart.
type Style struct {
	// Anonymous connections carry no credentials of the gateway.
	Anonymous bool
	// HTTP1 connections have one request at a time. Upgrades have no other way.
	HTTP1 bool
	// Once is for requests that must not use a connection that there is already: probes, and upgrades,
	// which net/http would send again if it broke.
	Once bool
	// Feed connections carry watches of the cache.
	Feed bool
	// PingAfter is the silence after which an HTTP/2 connection is pinged.
	PingAfter time.Duration
	// Window is how many bytes of one HTTP/2 response are buffered for a slow reader, 0 for the
	// default of 4 MiB.
	Window int
}

// NewFactory returns a factory for the server at base, with the credentials of cfg.
func NewFactory(base *url.URL, cfg *rest.Config, opts Options) (*Factory, error) {
	switch {
	case cfg.Dial != nil:
		opts.Dial = cfg.Dial
	case opts.Dial == nil:
		opts.Dial = (&net.Dialer{
			Timeout:         opts.DialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		}).DialContext
	}
	f := &Factory{base: base, opts: opts, proxy: cfg.Proxy}
	if f.proxy == nil {
		f.proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	// An exec plugin wraps the dialer, to close its connections when the certificate that it issued is
	// replaced.
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = opts.Dial
	wrap := cfg.WrapTransport
	cfg.WrapTransport = nil
	own, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	f.plugin = credentials.Take(own, opts.CredentialTimeout, opts.Log)
	own.WrapTransport = transport.Wrappers(wrap, own.WrapTransport)
	f.own = *own
	return f, nil
}

// At returns a factory for another server of the same cluster. Its certificate must be valid for
// name, unless that is empty.
func (f *Factory) At(base *url.URL, name string, server *health.Server) *Factory {
	at := *f
	at.base, at.opts.Server = base, server
	if at.own.TLS.ServerName == "" {
		at.own.TLS.ServerName = name
	}
	return &at
}

// PluginStuck reports whether the exec plugin hangs, so that there are no credentials.
func (f *Factory) PluginStuck() bool { return f.plugin.Stuck() }

// Insecure reports whether the server's certificate is not verified.
func (f *Factory) Insecure() bool { return f.own.TLS.Insecure }

// UsesPlainProxy reports whether requests go through an HTTP proxy in plain text.
func (f *Factory) UsesPlainProxy() (bool, error) {
	if f.base.Scheme != "http" {
		return false, nil
	}
	proxy, err := f.proxy(&http.Request{URL: f.base})
	if err != nil {
		return false, fmt.Errorf("upstream proxy: %w", err)
	}
	return proxy != nil && (proxy.Scheme == "http" || proxy.Scheme == "https"), nil
}

// Wrap adds the gateway's credentials to the requests that go through rt: tokens, basic
// authentication, plugins, impersonation of a kubeconfig. A request that has an Authorization
// header already would keep that: callers must remove it.
func (f *Factory) Wrap(rt http.RoundTripper) (http.RoundTripper, error) {
	cfg := f.own
	wrapped, err := transport.HTTPWrappersForConfig(&cfg, rt)
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	return wrapped, nil
}

// config returns the configuration for connections of a style.
func (f *Factory) config(s Style) transport.Config {
	if !s.Anonymous {
		return f.own
	}
	return transport.Config{
		TLS: transport.TLSConfig{
			CAFile: f.own.TLS.CAFile, CAData: f.own.TLS.CAData,
			Insecure: f.own.TLS.Insecure, ServerName: f.own.TLS.ServerName,
		},
		DialHolder: &transport.DialHolder{Dial: f.opts.Dial},
	}
}

// transport makes connections of a style. TLS sessions are not resumed: one of another transport
// would bring that transport's certificate with it.
func (f *Factory) transport(s Style) (*Transport, error) {
	cfg := f.config(s)
	tlsConfig, err := transport.TLSConfigFor(&cfg)
	if err != nil {
		return nil, fmt.Errorf("upstream TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.HTTP1)
	t := &Transport{maxSends: f.opts.MaxSends, Transport: &http.Transport{
		Proxy:               f.proxy,
		DialContext:         cfg.DialHolder.Dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: f.opts.DialTimeout,
		Protocols:           &protocols,
		DisableKeepAlives:   s.Once,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     http1Idle,
	}}
	if s.HTTP1 {
		t.DialContext = dialHTTP1(t.DialContext)
		return t, nil
	}
	return t, f.configureHTTP2(t, s)
}

// maxPingWait is how long a ping waits for its answer while other bytes come.
const maxPingWait = 10 * time.Minute

func (f *Factory) configureHTTP2(t *Transport, s Style) error {
	t.opener = &opener{}
	t.DialContext = f.opts.Conns.Dial(t.DialContext, f.opts.Server, &t.opener.open, s.Feed)
	t.IdleConnTimeout = 90 * time.Second
	t.HTTP2 = &http.HTTP2Config{
		SendPingTimeout:           s.PingAfter,
		PingTimeout:               maxPingWait, // before that: health.LimitPings
		WriteByteTimeout:          30 * time.Second,
		MaxReadFrameSize:          256 << 10,
		MaxReceiveBufferPerStream: s.Window,
	}
	//lint:ignore SA1019 net/http's own HTTP/2 may send a write twice, see Transport.send.
	if _, err := http2.ConfigureTransports(t.Transport); err != nil {
		return fmt.Errorf("upstream HTTP/2: %w", err)
	}
	health.LimitPings(t.Transport, s.PingAfter+f.opts.PingTimeout)
	return nil
}
