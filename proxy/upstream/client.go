package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"

	// OIDC, and clear errors for the auth providers that were removed.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

// Client talks to the kube-apiservers of one upstream. It is safe for concurrent use.
type Client struct {
	base     *url.URL // scheme, host and the path under which the server lives
	config   *rest.Config
	agent    string
	compress bool
	// absolute says that requests name the server in full, as an HTTP proxy in
	// between needs it of those in plain text.
	absolute bool
	limits   Limits
	log      *slog.Logger
	metrics  *metrics
	health   *health.Detector
	rights   *rights
	local    *local // set when the upstream is in this process

	// Over HTTP/2 where the upstream offers it; direct ones over HTTP/1.1, a
	// connection for each request. With and without the gateway's credentials.
	// Of several servers each request chooses one.
	own, anonymous             http.RoundTripper
	ownNarrow, anonymousNarrow http.RoundTripper // with small windows
	ownDirect, anonymousDirect http.RoundTripper
	feed                       http.RoundTripper
	looks                      http.RoundTripper // at several servers, with a connection that nothing else uses
	ownOnce, anonymousOnce     http.RoundTripper // with a new connection for each request
	pools                      []*pool.Pool      // of a single server
	servers                    *balance.Set      // nil for a single one
	pluginStuck                func() bool
	direct, shared             atomic.Int64 // forwarded requests on direct connections; on shared ones

	buffers sync.Pool              // *[]byte of copyBuffer
	version atomic.Pointer[[]byte] // what the upstream said last of its version; nil before
	// forwardsFailed are requests that were forwarded, or should have been.
	forwardsFailed failures
	// identityRefused is when that was logged.
	identityRefused seldom

	// ctx ends with Close, and with it all that is under way.
	ctx     context.Context
	cancel  context.CancelFunc
	panics  *contain.Panics
	running sync.WaitGroup // the rotator, streams and upgrades

	mu struct {
		sync.Mutex
		closed bool // nothing is added to running any more
	}
}

// New returns a client of the upstream that opts name. It loads credentials, but
// does not connect. Close releases it.
func New(opts Options) (*Client, error) {
	opts.Limits.setDefaults()
	c := &Client{limits: opts.Limits, agent: opts.UserAgent, log: opts.Logger}
	c.buffers.New = func() any { b := make([]byte, copyBuffer); return &b }
	if c.agent == "" {
		c.agent = "kubeweir"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.health = c.newHealth(&opts)
	c.rights = newRights(c.log)
	c.panics = contain.New(opts.Registerer, c.log)
	var err error
	c.metrics, err = newMetrics(opts.Registerer, c)
	switch {
	case err != nil:
	case opts.InProcess != nil:
		c.openLocal(opts.InProcess)
	default:
		err = c.openRemote(&opts)
	}
	if err != nil {
		c.cancel()
		return nil, err
	}
	return c, nil
}

// newHealth returns the failure detector of the upstream. One in this process never fails.
func (c *Client) newHealth(opts *Options) *health.Detector {
	o := health.Options{
		PingInterval: c.limits.PingInterval, RequestTimeout: c.limits.RequestTimeout,
		Log: c.log, Context: c.ctx, Spawn: c.spawn, Probe: c.probe, Heartbeat: c.beat,
	}
	if opts.InProcess == nil {
		o.SilenceTimeout = c.limits.SilenceTimeout
	}
	if list, _, err := apiservers.Parse(opts.Servers); err == nil && !list.Several() {
		o.Abandon = c.abandonPooled
	}
	return health.New(o)
}

// openRemote makes what it takes to talk to a server.
func (c *Client) openRemote(opts *Options) (err error) {
	if c.config, err = opts.restConfig(); err != nil {
		return err
	}
	list, _, err := apiservers.Parse(opts.Servers)
	if err != nil {
		return fmt.Errorf("upstream servers: the list %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return fmt.Errorf("upstream address %q: %w", c.config.Host, err)
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
	base = balance.BaseOf(&list, base)
	c.base, c.compress = base, opts.Compression.compresses(base)
	factory, err := pool.NewFactory(base, c.config, pool.Options{
		Dial: opts.dial, DialTimeout: c.limits.DialTimeout, PingTimeout: c.limits.PingTimeout, CredentialTimeout: c.limits.SilenceTimeout / 2, // before requests that wait end
		Log: c.log, Conns: c.health.Conns(), Server: c.health.Server(),
	})
	if err != nil {
		return err
	}
	c.pluginStuck = factory.PluginStuck
	if c.absolute, err = factory.UsesPlainProxy(); err != nil {
		return err
	}
	if err := c.open(factory, list, opts.Resolver); err != nil {
		return err
	}
	c.health.Start()
	rotator, err := pool.NewRotator(factory, c.allPools, c.log, c.metrics.reloads)
	if rotator != nil {
		c.spawn(func() { rotator.Run(c.ctx, c.limits.CredentialCheck) })
	}
	return err
}

// styles are those of the client's connections, and transports where requests of each go.
func (c *Client) styles() (styles []pool.Style, transports []*http.RoundTripper) {
	quiet := 3 * c.limits.PingInterval
	for _, of := range []struct {
		style pool.Style
		rt    *http.RoundTripper
	}{
		{pool.Style{PingAfter: quiet, Window: forwardWindow}, &c.own},
		{pool.Style{PingAfter: quiet, Window: forwardWindow, Anonymous: true}, &c.anonymous},
		{pool.Style{PingAfter: quiet, Window: narrowWindow}, &c.ownNarrow},
		{pool.Style{PingAfter: quiet, Window: narrowWindow, Anonymous: true}, &c.anonymousNarrow},
		{pool.Style{HTTP1: true}, &c.ownDirect},
		{pool.Style{HTTP1: true, Anonymous: true}, &c.anonymousDirect},
		{pool.Style{PingAfter: c.limits.PingInterval, Feed: true}, &c.feed},
		{pool.Style{HTTP1: true}, &c.looks},
		{pool.Style{HTTP1: true, Once: true}, &c.ownOnce},
		{pool.Style{HTTP1: true, Once: true, Anonymous: true}, &c.anonymousOnce},
	} {
		styles, transports = append(styles, of.style), append(transports, of.rt)
	}
	return styles, transports
}

// open makes the connections to the upstream, those of several servers if there is a list of them.
func (c *Client) open(f *pool.Factory, list balance.List, names balance.Resolver) (err error) {
	styles, transports := c.styles()
	if list.Several() {
		if c.servers, err = c.newServers(f, list, names, styles); err != nil {
			return err
		}
	}
	for i, style := range styles {
		var rt http.RoundTripper
		if c.servers != nil {
			rt = c.servers.RoundTripper(i)
		} else {
			p, err := f.Pool(style)
			if err != nil {
				return err
			}
			c.pools = append(c.pools, p)
			rt = p
		}
		if !style.Anonymous {
			if rt, err = f.Wrap(rt); err != nil {
				return err
			}
		}
		*transports[i] = rt
	}
	if c.servers != nil {
		return c.servers.Start()
	}
	return nil
}

// newServers returns the API servers of the list.
func (c *Client) newServers(f *pool.Factory, list balance.List, names balance.Resolver, styles []pool.Style) (*balance.Set, error) {
	return balance.New(balance.Options{
		List: list, Resolver: names, Base: c.base, AbsoluteURLs: c.absolute, Agent: c.agent, Factory: f, Styles: styles,
		CheckTransport: func() http.RoundTripper { return c.looks }, OnceTransport: c.once, Get: c.getJSON, Health: c.health,
		ServerCheck: c.limits.ServerCheck, ServerSilence: c.limits.ServerSilence, SilenceTimeout: c.limits.SilenceTimeout,
		Log: c.log, Metrics: c.metrics.servers, Context: c.ctx, Spawn: c.spawn,
	})
}

// allPools are those of all servers.
func (c *Client) allPools() []*pool.Pool {
	if c.servers != nil {
		return c.servers.Pools()
	}
	return c.pools
}

// abandonPooled has requests to a single server sent over new connections from now on, but those of feeds.
func (c *Client) abandonPooled() {
	for _, p := range c.pools {
		if p.Style().Feed {
			continue
		}
		if _, err := p.Renew(); err != nil {
			c.log.Warn("dead connections to the upstream stay in use", "error", err)
			return
		}
	}
}

// Server is the address of the upstream, for logs and messages.
func (c *Client) Server() string {
	if c.servers != nil {
		return c.servers.String()
	}
	return c.base.Redacted()
}

// CheckServers returns an error when none of several API servers can be reached.
func (c *Client) CheckServers() error {
	if c.servers == nil {
		return nil
	}
	return c.servers.Reachable()
}

// Reachable reports whether the upstream can be reached, as far as is known without
// asking it: since when it cannot, if it gives no sign of life, or if no connection to it
// could be made since its last answer. While it cannot, it is looked for.
func (c *Client) Reachable() (ok bool, since time.Time) { return c.health.Reachable() }

// spawn runs f in a goroutine that Close waits for; f must end when c.ctx does.
// It returns false, and runs nothing, after Close.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed {
		c.panics.Go(&c.running, "background", f)
	}
	return !c.mu.closed
}

// Close ends everything under way and waits for it.
func (c *Client) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	for _, p := range c.allPools() {
		p.CloseIdleConnections()
	}
	c.health.Conns().Close()
	if c.local != nil {
		c.local.transport.Close()
	}
}

// ownPath is the path of an own request as the server itself sees it.
func (c *Client) ownPath(u *url.URL) string { return strings.TrimPrefix(u.Path, c.base.Path) }

// resourceURL is the URL of an own request: path begins with a slash and is not
// escaped.
func (c *Client) resourceURL(path string, query url.Values) *url.URL {
	u := *c.base
	u.Path, u.RawPath = c.base.Path+path, ""
	u.RawQuery = query.Encode()
	return &u
}
