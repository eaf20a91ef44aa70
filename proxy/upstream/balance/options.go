package balance

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/kubeweir/kubeweir/internal/apiservers"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// List names the API servers of a cluster.
type List = apiservers.List

// Options configure the servers of a Set and their checks.
type Options struct {
	List     List
	Resolver Resolver // of a name in List, nil for net.DefaultResolver
	// Base is the URL of requests that name no server. With AbsoluteURLs requests contain the full
	// URL, as an HTTP proxy for plaintext requests requires.
	Base         *url.URL
	AbsoluteURLs bool
	Agent        string // User-Agent of the gateway's own requests
	// Factory makes the connections to each server, of each of Styles.
	Factory  *pool.Factory
	Styles   []pool.Style
	Requests Requests
	Timeouts
	// Health is notified of every response.
	Health  *health.Detector
	Metrics *Metrics
	health.Background
}

// Timeouts of servers.
type Timeouts struct {
	// ServerCheck is how often each server is checked. ServerSilence is how long one of them may give
	// no sign of life before what waits for it goes to another, SilenceTimeout how long writes wait
	// for it.
	ServerCheck, ServerSilence, SilenceTimeout time.Duration
}

// Requests are how a Set sends requests of its own.
type Requests struct {
	// Check returns the transport of checks, over a connection that nothing else uses, and Once that
	// of requests over new connections.
	Check, Once func() http.RoundTripper
	// Get reads JSON from the preferred server.
	Get func(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
}

// writeTimeout is how long writes wait for an unresponsive server.
func (t *Timeouts) writeTimeout() time.Duration { return max(0, t.SilenceTimeout-t.ServerSilence) }

// Resolver resolves a DNS name, as a net.Resolver does.
type Resolver interface {
	// LookupNetIP has the semantics of net.Resolver.LookupNetIP.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}
