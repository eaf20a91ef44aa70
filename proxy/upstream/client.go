package upstream

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
	"github.com/kubeweir/kubeweir/proxy/upstream/rights"
)

// Client talks to the kube-apiservers of one upstream. It is safe for concurrent use.
type Client struct {
	base     *url.URL // scheme, host and the path under which the server lives
	agent    string
	compress bool
	limits   Limits
	log      *slog.Logger
	metrics  *metrics
	health   *health.Detector
	rights   *rights.Rights
	local    *local // set when the upstream is in this process
	connections
	background

	slots
	version atomic.Pointer[[]byte] // what the upstream said last of its version; nil before
	logs    struct {
		forward, identity rate.Sometimes
	}
}

// slots are how many forwarded requests are on HTTP/1.1 connections, and on shared ones.
type slots struct{ direct, shared atomic.Int64 }

// connections are those to a remote upstream. If there are several servers, each request chooses
// one.
type connections struct {
	own, anonymous transports        // with and without the gateway's credentials
	feed           http.RoundTripper // for the watches and lists of the cache
	checks         http.RoundTripper // of several servers, over connections that nothing else uses

	pools   []*pool.Pool // of a single server
	servers *balance.Set // nil for a single server
	// pluginStuck reports whether an exec plugin hangs, so that there are no credentials.
	pluginStuck func() bool
	// absolute is true if requests contain the full URL, as an HTTP proxy for plaintext requests
	// requires.
	absolute bool
}

// transports are the transports for requests with the same credentials.
type transports struct {
	shared http.RoundTripper // HTTP/2 where the upstream offers it
	narrow http.RoundTripper // shared, with small windows
	short  http.RoundTripper // HTTP/1.1, with one request at a time on a connection
	once   http.RoundTripper // HTTP/1.1, with a new connection for each request
}

// allPools returns the pools of all servers.
func (c *Client) allPools() []*pool.Pool {
	if c.servers != nil {
		return c.servers.Pools()
	}
	return c.pools
}

// Server returns the address of the upstream, for logs and messages.
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

// Reachable reports whether the upstream can be reached, as far as is known without asking it, and
// since when it cannot.
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

// ownPath returns the path of an own request as the server itself sees it.
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

// spawn runs f in a goroutine that Close waits for; f must end when ctx does. After Close it
// returns false, and runs nothing.
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

// Background returns the environment of goroutines that end with the client.
func (c *Client) Background() health.Background {
	return health.Background{Context: c.ctx, Spawn: c.spawn, Log: c.log}
}
