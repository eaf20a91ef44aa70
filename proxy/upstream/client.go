package upstream

import (
	"context"
	"errors"
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
	"github.com/kubeweir/kubeweir/internal/credentials"

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
	now      func() time.Time // which does not jump, of all that is compared with contacts
	contacts *contacts
	life     *life
	pulse    *pulse
	late     *lateness
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
	pools                      []*pool           // of a single server
	servers                    *servers          // nil for a single one
	plugin                     *credentials.Plugin
	direct, shared             atomic.Int64 // forwarded requests on direct connections; on shared ones

	buffers sync.Pool              // *[]byte of copyBuffer
	version atomic.Pointer[[]byte] // what the upstream said last of its version; nil before
	// forwardsFailed are requests that were forwarded, or should have been.
	forwardsFailed failures
	// identityRefused is when that was logged.
	identityRefused seldom

	// ctx ends with Close, and with it all that is under way.
	conns   *openConns // nil in one process
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
	now := steady()
	c := &Client{limits: opts.Limits, agent: opts.UserAgent, log: opts.Logger, now: now, contacts: newContacts(now)}
	c.buffers.New = func() any { b := make([]byte, copyBuffer); return &b }
	if c.agent == "" {
		c.agent = "kubeweir"
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.life = &life{contacts: c.contacts, now: now, log: c.log, probe: c.probe, spawn: c.spawn}
	c.pulse = &pulse{now: now, ask: c.sendPulse}
	c.late = &lateness{
		now:      now,
		measured: func() time.Duration { return max(c.pulse.measured(), c.contacts.unanswered()) },
		taken:    func(since int64) bool { return c.contacts.taken(since, c.limits.PingInterval) },
	}
	c.rights = newRights(c.log)
	c.panics = contain.New(opts.Registerer, c.log)
	var err error
	if c.metrics, err = newMetrics(opts.Registerer, c); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.life.ctx = c.ctx
	if opts.InProcess != nil {
		c.openLocal(opts.InProcess)
	} else {
		err = c.openRemote(&opts)
	}
	if err != nil {
		c.cancel()
		return nil, err
	}
	return c, nil
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
	base = baseOf(&list, base)
	c.base, c.compress = base, opts.Compression.compresses(base)
	factory, err := newFactory(base, c.config, opts.dial, c.limits, c.log)
	if err != nil {
		return err
	}
	c.conns, c.life.conns, factory.dead = factory.conns, factory.conns, &c.life.dead
	c.plugin = factory.plugin
	if c.absolute, err = factory.absolute(); err != nil {
		return err
	}
	c.life.limit = c.limits.SilenceTimeout
	if list.Several() {
		err = c.openServers(factory, list, opts.Resolver)
	} else {
		err = c.open(factory)
	}
	if err != nil {
		return err
	}
	c.life.dead.ask, c.life.dead.abandon = c.life.ask, c.abandonPooled
	c.spawn(func() { c.life.guard(c.ctx, c.limits.PingInterval, func() { c.late.delay() }) })
	c.spawn(func() { c.pulse.keep(c.ctx, c.contacts) })
	return c.watchFiles(factory)
}

// styled says for which requests a style is.
type styled struct {
	style style
	rt    *http.RoundTripper
}

// styles are those of the client's connections.
func (c *Client) styles() []styled {
	quiet := 3 * c.limits.PingInterval
	return []styled{
		{style{pingAfter: quiet, window: forwardWindow}, &c.own},
		{style{pingAfter: quiet, window: forwardWindow, anonymous: true}, &c.anonymous},
		{style{pingAfter: quiet, window: narrowWindow}, &c.ownNarrow},
		{style{pingAfter: quiet, window: narrowWindow, anonymous: true}, &c.anonymousNarrow},
		{style{http1: true}, &c.ownDirect},
		{style{http1: true, anonymous: true}, &c.anonymousDirect},
		{style{pingAfter: c.limits.PingInterval, track: c.contacts.track(&c.life.dead)}, &c.feed},
		{style{http1: true}, &c.looks},
		{style{http1: true, once: true}, &c.ownOnce},
		{style{http1: true, once: true, anonymous: true}, &c.anonymousOnce},
	}
}

// open makes the pools of a single server.
func (c *Client) open(f *factory) (err error) {
	for _, p := range c.styles() {
		pool, err := f.pool(p.style)
		if err != nil {
			return err
		}
		c.pools = append(c.pools, pool)
		if *p.rt = http.RoundTripper(pool); p.style.anonymous {
			continue
		}
		if *p.rt, err = f.wrap(pool); err != nil {
			return err
		}
	}
	return nil
}

// allPools are those of all servers.
func (c *Client) allPools() []*pool {
	if c.servers != nil {
		return c.servers.pools()
	}
	return c.pools
}

// watchFiles starts the rotator where there is something to rotate.
func (c *Client) watchFiles(f *factory) error {
	files := f.files()
	if len(files) == 0 {
		return nil
	}
	seen, err := fingerprint(files)
	if err != nil {
		return fmt.Errorf("upstream TLS: %w", err)
	}
	r := &rotator{factory: f, pools: c.allPools, log: c.log, reloads: c.metrics.reloads, seen: seen}
	c.spawn(func() { r.run(c.ctx, c.limits.CredentialCheck) })
	return nil
}

// Server is the address of the upstream, for logs and messages.
func (c *Client) Server() string {
	if c.servers != nil {
		return c.servers.addresses()
	}
	return c.base.Redacted()
}

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
	if c.conns != nil {
		c.conns.close()
	}
	if c.local != nil {
		c.local.transport.Close()
	}
}

var errClosed = errors.New("the upstream client is closed")

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
