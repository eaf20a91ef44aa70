package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/inprocess"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
	"github.com/kubeweir/kubeweir/proxy/upstream/rights"

	// OIDC, and clear errors for the auth providers that were removed.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

// New returns a client of the upstream named by opts. It loads credentials, but does not connect.
// Close releases it.
func New(opts Options) (*Client, error) {
	opts.Limits.setDefaults()
	c := &Client{limits: opts.Limits, agent: opts.UserAgent, log: opts.Logger}
	if c.agent == "" {
		c.agent = "kubeweir"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.logs.forward.Interval, c.logs.identity.Interval = errorLogPeriod, errorLogPeriod
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.panics = contain.New(opts.Registerer, c.log)
	c.health = c.newHealth(&opts)
	c.rights = rights.New(c.log)
	var err error
	c.metrics, err = newMetrics(opts.Registerer, c.health, c.rights.Metric())
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

// newHealth returns the failure detector of the upstream. An upstream in this process never fails.
func (c *Client) newHealth(opts *Options) *health.Detector {
	o := health.Options{
		PingInterval: c.limits.PingInterval, RequestTimeout: c.limits.RequestTimeout, Background: c.Background(),
		Probe: c.probe, Heartbeat: c.beat,
	}
	if opts.InProcess == nil {
		o.SilenceTimeout = c.limits.SilenceTimeout
	}
	if list, _, err := apiservers.Parse(opts.Servers); err == nil && !list.Several() {
		o.Abandon = func() { pool.RenewAll(c.pools, c.log) }
	}
	return health.New(o)
}

// openRemote prepares the connections to a remote upstream.
func (c *Client) openRemote(opts *Options) (err error) {
	config, err := opts.restConfig()
	if err != nil {
		return err
	}
	list, _, err := apiservers.Parse(opts.Servers)
	if err != nil {
		return fmt.Errorf("upstream servers: the list %w", err)
	}
	defer func() {
		if err != nil && opts.Kubeconfig != "" {
			err = fmt.Errorf("%s: %w", opts.Kubeconfig, err)
		}
	}()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("upstream address %q: %w", config.Host, err)
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
	base = balance.BaseOf(&list, base)
	c.base, c.compress = base, opts.Compress || !isLocal(base)
	maxSends := pool.MaxSends
	if list.Several() {
		maxSends = pool.MaxSendsEach
	}
	factory, err := pool.NewFactory(base, config, pool.Options{
		Dial: opts.dial, MaxSends: maxSends, DialTimeout: c.limits.DialTimeout, PingTimeout: c.limits.PingTimeout, CredentialTimeout: c.limits.SilenceTimeout / 2, // before requests that wait end
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
	if err != nil {
		return err
	}
	c.spawn(func() { rotator.Run(c.ctx) })
	return nil
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

// open opens the pools of a single server, or those of several servers if there is a list of them.
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
		Requests: balance.Requests{Check: func() http.RoundTripper { return c.checks }, Once: c.once, Get: c.getJSON},
		Timeouts: balance.Timeouts{ServerCheck: c.limits.ServerCheck, ServerSilence: c.limits.ServerSilence, SilenceTimeout: c.limits.SilenceTimeout},
		Health:   c.health, Metrics: c.metrics.servers, Background: c.Background(),
	})
}

// openLocal prepares calls of an upstream in this process.
func (c *Client) openLocal(p *InProcess) {
	c.base = &url.URL{Scheme: "https", Host: localHost}
	transport := inprocess.New(p.Handler, c.log)
	c.local = &local{p, transport}
	own := ownTransport{c.local}
	c.own.shared, c.own.narrow, c.own.short, c.own.once, c.feed = own, own, own, own, own
	anonymous := c.local.transport
	c.anonymous.shared, c.anonymous.narrow, c.anonymous.short, c.anonymous.once = anonymous, anonymous, anonymous, anonymous
}

// A slow client of a large forwarded response costs forwardWindow bytes, or, beyond sharedRequests,
// narrowWindow: a thousand that stop reading cost 125 MiB.
const (
	forwardWindow = 1 << 20
	narrowWindow  = 64 << 10
)
