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
	limits   Limits
	log      *slog.Logger
	metrics  *metrics
	health   *health.Detector
	rights   *rights
	local    *local // set when the upstream is in this process
	connections
	background

	direct, shared atomic.Int64           // forwarded requests on HTTP/1.1 connections; on shared ones
	buffers        sync.Pool              // *[]byte of copyBuffer
	version        atomic.Pointer[[]byte] // what the upstream said last of its version; nil before
	forwardErrors  rateLimitedLog
	identityErrors logLimit
}

// connections are those to a remote upstream. Of several servers each request chooses one.
type connections struct {
	own, anonymous transports        // with and without the gateway's credentials
	feed           http.RoundTripper // for the watches and lists of the cache
	checks         http.RoundTripper // of several servers, over connections that nothing else uses

	pools   []*pool.Pool // of a single server
	servers *balance.Set // nil for a single server
	// pluginStuck reports whether an exec plugin hangs, so that there are no credentials.
	pluginStuck func() bool
	// absolute says that requests name the server in full, as an HTTP proxy in between needs it of
	// requests in plain text.
	absolute bool
}

// transports are what requests with the same credentials go through.
type transports struct {
	shared http.RoundTripper // HTTP/2 where the upstream offers it
	narrow http.RoundTripper // shared, with small windows
	short  http.RoundTripper // HTTP/1.1, with one request at a time on a connection
	once   http.RoundTripper // HTTP/1.1, with a new connection for each request
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
	c.panics = contain.New(opts.Registerer, c.log)
	c.health = c.newHealth(&opts)
	c.rights = newRights(c.log)
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

// styles returns the styles of the client's connections, and where the transport of each belongs.
func (c *Client) styles() (styles []pool.Style, transports []*http.RoundTripper) {
	add := func(s pool.Style, rt *http.RoundTripper) {
		styles, transports = append(styles, s), append(transports, rt)
	}
	add(pool.Style{PingAfter: c.limits.PingInterval, Feed: true}, &c.feed)
	add(pool.Style{HTTP1: true}, &c.checks)
	for _, anonymous := range []bool{false, true} {
		t, ping := &c.own, 3*c.limits.PingInterval
		if anonymous {
			t = &c.anonymous
		}
		add(pool.Style{Anonymous: anonymous, PingAfter: ping, Window: forwardWindow}, &t.shared)
		add(pool.Style{Anonymous: anonymous, PingAfter: ping, Window: narrowWindow}, &t.narrow)
		add(pool.Style{Anonymous: anonymous, HTTP1: true}, &t.short)
		add(pool.Style{Anonymous: anonymous, HTTP1: true, Once: true}, &t.once)
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
		CheckTransport: func() http.RoundTripper { return c.checks }, OnceTransport: c.once, Get: c.getJSON, Health: c.health,
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

// Close ends everything in progress and waits for it.
func (c *Client) Close() {
	c.end()
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

// background is the goroutines of a client.
type background struct {
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	panics  *contain.Panics
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool // guarded by mu: no goroutine is started any more
}

// spawn runs f in a goroutine that Close waits for; f must end when ctx does. After Close it returns
// false, and runs nothing.
func (b *background) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.panics.Go(&b.running, "background", f)
	}
	return !b.closed
}

// end ends all goroutines and waits for them.
func (b *background) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.running.Wait()
}
