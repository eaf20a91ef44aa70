package upstream

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
)

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// factory makes the transports of one upstream.
type factory struct {
	// own is never passed to client-go itself: that would load files into it,
	// and later changes of the files would go unseen.
	own    transport.Config
	base   *url.URL
	dial   dialFunc
	proxy  func(*http.Request) (*url.URL, error)
	limits Limits
	// ownDial is set when connections are made as net.Dialer does; those of an exec
	// plugin belong to that, with the gateway's credentials.
	ownDial, exec bool
	plugin        *credentials.Plugin // nil if there is none
	// conns are the open connections of HTTP/2; dead is what is known of those to the server.
	conns *openConns
	dead  *dead
}

// newFactory makes connections with dial, nil for a net.Dialer's, unless cfg has its own.
func newFactory(base *url.URL, cfg *rest.Config, dial dialFunc, limits Limits, log *slog.Logger) (*factory, error) {
	switch {
	case cfg.Dial != nil:
		dial = cfg.Dial
	case dial == nil:
		dial = (&net.Dialer{
			Timeout:         limits.DialTimeout,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		}).DialContext
	}
	f := &factory{base: base, dial: dial, proxy: cfg.Proxy, limits: limits, ownDial: cfg.Dial == nil, exec: cfg.ExecProvider != nil, conns: newOpenConns()}
	if f.proxy == nil {
		f.proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	// An exec plugin wraps the dialer, to close its connections when the
	// certificate that it gave out is replaced.
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = dial
	wrap := cfg.WrapTransport
	cfg.WrapTransport = nil
	own, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	// Before life ends those who wait as if the upstream were silent.
	f.plugin = credentials.Take(own, limits.SilenceTimeout/2, log)
	own.WrapTransport = transport.Wrappers(wrap, own.WrapTransport)
	f.own = *own
	return f, nil
}

// absolute reports whether requests go through an HTTP proxy in plain text.
func (f *factory) absolute() (bool, error) {
	if f.base.Scheme != "http" {
		return false, nil
	}
	proxy, err := f.proxied()
	return proxy != nil && (proxy.Scheme == "http" || proxy.Scheme == "https"), err
}

// proxied is the proxy between here and the upstream, if there is one.
func (f *factory) proxied() (*url.URL, error) {
	proxy, err := f.proxy(&http.Request{URL: f.base})
	if err != nil {
		return nil, fmt.Errorf("upstream proxy: %w", err)
	}
	return proxy, nil
}

// anonymous is the configuration without anything that says who we are.
func (f *factory) anonymous() transport.Config {
	return transport.Config{
		TLS: transport.TLSConfig{
			CAFile: f.own.TLS.CAFile, CAData: f.own.TLS.CAData,
			Insecure: f.own.TLS.Insecure, ServerName: f.own.TLS.ServerName,
		},
		DialHolder: &transport.DialHolder{Dial: f.dial},
	}
}

// style is what tells the transports of one upstream apart.
type style struct {
	anonymous bool
	// http1 is for requests with a connection of their own; upgrades have no other
	// way.
	http1 bool
	// once is for requests that must not trust a connection that there is already:
	// probes, and upgrades, which net/http would send again if it broke.
	once bool
	// track, if set, sees each connection that is opened.
	track func(net.Conn) net.Conn
	// pingAfter is the silence after which an HTTP/2 connection is pinged.
	pingAfter time.Duration
	// window is how many bytes of one HTTP/2 response are buffered for a slow
	// reader, 0 for the default of 4 MiB.
	window int
}

// A slow client of a large forwarded response costs forwardWindow bytes, or, of the
// many beyond sharedRequests, narrowWindow: a thousand that stop reading cost 125 MiB.
const (
	forwardWindow = 1 << 20
	narrowWindow  = 64 << 10
)

// pongTimeout is how long a ping waits for its answer while other bytes come.
const pongTimeout = 10 * time.Minute

// transports are what requests of one style go through.
type transports struct {
	*http.Transport
	// direct, if set, is for those that it takes.
	direct *direct
	// opener is set for HTTP/2.
	opener *opener
}

// RoundTrip implements http.RoundTripper.
func (t *transports) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.direct != nil && t.direct.takes(req) {
		return t.direct.RoundTrip(req)
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
func (t *transports) CloseIdleConnections() {
	t.Transport.CloseIdleConnections()
	if t.direct != nil {
		t.direct.CloseIdleConnections()
	}
}

// transports makes those of one style. TLS sessions are not resumed: that of another
// transport would bring that transport's certificate with it.
func (f *factory) transports(s style) (*transports, error) {
	cfg := f.own
	if s.anonymous {
		cfg = f.anonymous()
	}
	tlsConfig, err := transport.TLSConfigFor(&cfg)
	if err != nil {
		return nil, fmt.Errorf("upstream TLS: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t := &transports{}
	if s.http1 && !s.once && f.ownDial && (s.anonymous || !f.exec) {
		proxy, err := f.proxied()
		if err != nil {
			return nil, err
		}
		if proxy == nil {
			t.direct = newDirect(f.base, f.dial, tlsConfig, f.limits.DialTimeout)
		}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.http1)
	idle := 90 * time.Second
	if s.http1 {
		idle = directIdle
	}
	dial := dialFunc(cfg.DialHolder.Dial)
	if !s.http1 {
		t.opener = &opener{}
		dial = f.conns.dial(dial, t.opener, f.dead)
	}
	t.Transport = &http.Transport{
		Proxy:               f.proxy,
		DialContext:         trackedDial(dial, s.track),
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: f.limits.DialTimeout,
		Protocols:           &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           s.pingAfter,
			PingTimeout:               pongTimeout, // before that: see pinged
			WriteByteTimeout:          30 * time.Second,
			MaxReadFrameSize:          256 << 10,
			MaxReceiveBufferPerStream: s.window,
		},
		DisableKeepAlives:   s.once,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     idle,
	}
	if s.http1 {
		return t, nil
	}
	//lint:ignore SA1019 net/http's own HTTP/2 may send a write twice, see sends.
	if _, err := http2.ConfigureTransports(t.Transport); err != nil {
		return nil, fmt.Errorf("upstream HTTP/2: %w", err)
	}
	pinged(t.Transport, s.pingAfter+f.limits.PingTimeout)
	return t, nil
}

func trackedDial(dial dialFunc, track func(net.Conn) net.Conn) dialFunc {
	if track == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return track(conn), nil
	}
}

// pool is a transport that is replaced when certificates change. Requests under
// way stay on the old one, whose connections end when they are idle.
type pool struct {
	factory *factory
	style   style
	current atomic.Pointer[transports]
}

func (f *factory) pool(s style) (*pool, error) {
	t, err := f.transports(s)
	if err != nil {
		return nil, err
	}
	p := &pool{factory: f, style: s}
	p.current.Store(t)
	return p, nil
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(req *http.Request) (*http.Response, error) {
	return p.current.Load().RoundTrip(req)
}

// reload takes over the files as they are now, and returns what there was before.
func (p *pool) reload() (old *transports, err error) {
	t, err := p.factory.transports(p.style)
	if err != nil {
		return nil, err
	}
	old = p.current.Swap(t)
	old.CloseIdleConnections()
	return old, nil
}

// CloseIdleConnections is found by client-go's wrappers.
func (p *pool) CloseIdleConnections() { p.current.Load().CloseIdleConnections() }

// wrap puts the gateway's credentials on what goes through rt: tokens, basic
// authentication, exec and auth provider plugins, impersonation of a kubeconfig.
// A request that has an Authorization header already would keep that: callers
// must remove it.
func (f *factory) wrap(rt http.RoundTripper) (http.RoundTripper, error) {
	cfg := f.own
	wrapped, err := transport.HTTPWrappersForConfig(&cfg, rt)
	if err != nil {
		return nil, fmt.Errorf("upstream credentials: %w", err)
	}
	return wrapped, nil
}
