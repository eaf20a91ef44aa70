package pool

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubeweir/kubeweir/internal/credentials"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Options say how connections are made.
type Options struct {
	// Dial connects, unless the configuration has its own; nil for a net.Dialer.
	Dial dialFunc
	// DialTimeout bounds connecting, and once more the TLS handshake.
	DialTimeout time.Duration
	// PingTimeout is how long a ping waits for its answer, or for any other byte.
	PingTimeout time.Duration
	// SilenceTimeout is when requests that wait for an upstream that is silent end.
	SilenceTimeout time.Duration
	// Log takes what happens to credentials.
	Log *slog.Logger
	// Conns takes the open connections of HTTP/2, and Server is what is known of them.
	Conns  *health.Conns
	Server *health.Server
}

// Factory makes the transports of one upstream.
type Factory struct {
	// own is never passed to client-go itself: that would load files into it,
	// and later changes of the files would go unseen.
	own   transport.Config
	base  *url.URL
	opts  Options
	proxy func(*http.Request) (*url.URL, error)
	// ownDial is set when connections are made as net.Dialer does; those of an exec
	// plugin belong to that, with the gateway's credentials.
	ownDial, exec bool
	plugin        *credentials.Plugin // nil if there is none
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
	f := &Factory{base: base, opts: opts, proxy: cfg.Proxy, ownDial: cfg.Dial == nil, exec: cfg.ExecProvider != nil}
	if f.proxy == nil {
		f.proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	// An exec plugin wraps the dialer, to close its connections when the
	// certificate that it gave out is replaced.
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = opts.Dial
	wrap := cfg.WrapTransport
	cfg.WrapTransport = nil
	own, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	// Before those end who wait as if the upstream were silent.
	f.plugin = credentials.Take(own, opts.SilenceTimeout/2, opts.Log)
	own.WrapTransport = transport.Wrappers(wrap, own.WrapTransport)
	f.own = *own
	return f, nil
}

// At returns a factory for another server of the same cluster, with what is known of lost
// connections to it. Its certificate must be good for name, unless that is empty.
func (f *Factory) At(base *url.URL, name string, server *health.Server) *Factory {
	at := *f
	at.base, at.opts.Server = base, server
	if at.own.TLS.ServerName == "" && name != "" {
		at.own.TLS.ServerName = name
	}
	return &at
}

// PluginStuck reports whether the exec plugin does not end, so that there are no credentials.
func (f *Factory) PluginStuck() bool { return f.plugin.Stuck() }

// Insecure reports whether the server's certificate is not verified.
func (f *Factory) Insecure() bool { return f.own.TLS.Insecure }

// Absolute reports whether requests go through an HTTP proxy in plain text.
func (f *Factory) Absolute() (bool, error) {
	if f.base.Scheme != "http" {
		return false, nil
	}
	proxy, err := f.proxied()
	return proxy != nil && (proxy.Scheme == "http" || proxy.Scheme == "https"), err
}

// proxied is the proxy between here and the upstream, if there is one.
func (f *Factory) proxied() (*url.URL, error) {
	proxy, err := f.proxy(&http.Request{URL: f.base})
	if err != nil {
		return nil, fmt.Errorf("upstream proxy: %w", err)
	}
	return proxy, nil
}

// anonymous is the configuration without anything that says who we are.
func (f *Factory) anonymous() transport.Config {
	return transport.Config{
		TLS: transport.TLSConfig{
			CAFile: f.own.TLS.CAFile, CAData: f.own.TLS.CAData,
			Insecure: f.own.TLS.Insecure, ServerName: f.own.TLS.ServerName,
		},
		DialHolder: &transport.DialHolder{Dial: f.opts.Dial},
	}
}

// Style is what tells the transports of one upstream apart.
type Style struct {
	// Anonymous connections carry nothing that says who we are.
	Anonymous bool
	// HTTP1 is for requests with a connection of their own; upgrades have no other
	// way.
	HTTP1 bool
	// Once is for requests that must not trust a connection that there is already:
	// probes, and upgrades, which net/http would send again if it broke.
	Once bool
	// Feed connections carry watches of the cache.
	Feed bool
	// PingAfter is the silence after which an HTTP/2 connection is pinged.
	PingAfter time.Duration
	// Window is how many bytes of one HTTP/2 response are buffered for a slow
	// reader, 0 for the default of 4 MiB.
	Window int
}

// pongTimeout is how long a ping waits for its answer while other bytes come.
const pongTimeout = 10 * time.Minute

// Transports are what requests of one style go through.
type Transports struct {
	*http.Transport
	// http1, if set, is for those that it takes.
	http1 *http1Pool
	// opener is set for HTTP/2.
	opener *opener
}

// RoundTrip implements http.RoundTripper.
func (t *Transports) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.http1 != nil && t.http1.takes(req) {
		return t.http1.RoundTrip(req)
	}
	if t.opener == nil {
		return t.Transport.RoundTrip(req)
	}
	req, done, err := t.opener.enter(req)
	if err != nil {
		return nil, err
	}
	defer done()
	return t.Transport.RoundTrip(req)
}

// CloseIdleConnections closes those that are not in use now.
func (t *Transports) CloseIdleConnections() {
	t.Transport.CloseIdleConnections()
	if t.http1 != nil {
		t.http1.CloseIdleConnections()
	}
}

// transports makes those of one style. TLS sessions are not resumed: that of another
// transport would bring that transport's certificate with it.
func (f *Factory) transports(s Style) (*Transports, error) {
	cfg := f.own
	if s.Anonymous {
		cfg = f.anonymous()
	}
	tlsConfig, err := transport.TLSConfigFor(&cfg)
	if err != nil {
		return nil, fmt.Errorf("upstream TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t := &Transports{}
	if s.HTTP1 && !s.Once && f.ownDial && (s.Anonymous || !f.exec) {
		proxy, err := f.proxied()
		if err != nil {
			return nil, err
		}
		if proxy == nil {
			t.http1 = newHTTP1Pool(f.base, f.opts.Dial, tlsConfig, f.opts.DialTimeout)
		}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.HTTP1)
	idle := 90 * time.Second
	if s.HTTP1 {
		idle = http1Idle
	}
	dial := dialFunc(cfg.DialHolder.Dial)
	if !s.HTTP1 {
		t.opener = &opener{}
		dial = f.opts.Conns.Dial(dial, f.opts.Server, &t.opener.open, s.Feed)
	}
	t.Transport = &http.Transport{
		Proxy:               f.proxy,
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: f.opts.DialTimeout,
		Protocols:           &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           s.PingAfter,
			PingTimeout:               pongTimeout, // before that: see health.LimitPings
			WriteByteTimeout:          30 * time.Second,
			MaxReadFrameSize:          256 << 10,
			MaxReceiveBufferPerStream: s.Window,
		},
		DisableKeepAlives:   s.Once,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     idle,
	}
	if s.HTTP1 {
		return t, nil
	}
	//lint:ignore SA1019 net/http's own HTTP/2 may send a write twice, see sends.
	if _, err := http2.ConfigureTransports(t.Transport); err != nil {
		return nil, fmt.Errorf("upstream HTTP/2: %w", err)
	}
	health.LimitPings(t.Transport, s.PingAfter+f.opts.PingTimeout)
	return t, nil
}

// Pool is a transport that is replaced when certificates change. Requests under
// way stay on the old one, whose connections end when they are idle.
type Pool struct {
	factory *Factory
	style   Style
	current atomic.Pointer[Transports]
}

// Pool makes connections of a style.
func (f *Factory) Pool(s Style) (*Pool, error) {
	t, err := f.transports(s)
	if err != nil {
		return nil, err
	}
	p := &Pool{factory: f, style: s}
	p.current.Store(t)
	return p, nil
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	return p.current.Load().RoundTrip(req)
}

// Style is that of the connections.
func (p *Pool) Style() Style { return p.style }

// Reload takes over the files as they are now, and returns what there was before.
func (p *Pool) Reload() (old *Transports, err error) {
	t, err := p.factory.transports(p.style)
	if err != nil {
		return nil, err
	}
	old = p.current.Swap(t)
	old.CloseIdleConnections()
	return old, nil
}

// CloseIdleConnections is found by client-go's wrappers.
func (p *Pool) CloseIdleConnections() { p.current.Load().CloseIdleConnections() }

// Wrap puts the gateway's credentials on what goes through rt: tokens, basic
// authentication, exec and auth provider plugins, impersonation of a kubeconfig.
// A request that has an Authorization header already would keep that: callers
// must remove it.
func (f *Factory) Wrap(rt http.RoundTripper) (http.RoundTripper, error) {
	cfg := f.own
	wrapped, err := transport.HTTPWrappersForConfig(&cfg, rt)
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	return wrapped, nil
}
