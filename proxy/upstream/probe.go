package upstream

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// once is for what may be asked as nobody, too: that the gateway has no credentials for the time
// being says nothing of the upstream.
func (c *Client) once() http.RoundTripper {
	if c.pluginStuck() {
		return c.anonymous.once
	}
	return c.own.once
}

// probe asks the upstream, or each of several servers, for a sign of life.
func (c *Client) probe() {
	if c.servers != nil {
		c.servers.CheckAll()
		return
	}
	c.health.RunProbe(func(ctx context.Context) error {
		req := (&http.Request{
			Method: http.MethodGet, URL: c.resourceURL("/version", nil), Host: c.base.Host,
			Header: http.Header{"User-Agent": {c.agent}}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}).WithContext(ctx)
		resp, err := c.once().RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
}

// beat asks for the options of the server as a whole (RFC 9110, 9.3.7): Go's answers
// that before authentication, priority and fairness. Any answer will do.
func (c *Client) beat(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = c.sends().Trace(ctx, func(error) { cancel() })
	req := (&http.Request{
		Method: http.MethodOptions, URL: &url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Opaque: "*"}, Host: c.base.Host,
		Header: http.Header{"User-Agent": {c.agent}},
	}).WithContext(ctx)
	resp, err := c.feed.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// farAfter is from which delay on the upstream is far: a new connection is then worth
// avoiding.
const farAfter = 200 * time.Millisecond

// far reports whether the upstream is, by what was measured last.
func (c *Client) far() bool {
	rtt, _ := c.health.RTT()
	return rtt >= farAfter
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
