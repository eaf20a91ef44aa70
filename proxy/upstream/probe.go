package upstream

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// once returns the transport for requests that anonymous clients may send, too. They are sent
// without credentials while there are none, which says nothing of the upstream.
func (c *Client) once() http.RoundTripper {
	if c.pluginStuck() {
		return c.anonymous.once
	}
	return c.own.once
}

// probe asks the upstream, or each of several servers, for a sign of life. It does not wait.
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

// beat asks for the options of the server as a whole (RFC 9110, 9.3.7): Go's server responds before
// authentication, priority and fairness. Any response will do.
func (c *Client) beat(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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

// farAfter is the round trip from which on a new connection is worth avoiding.
const farAfter = 200 * time.Millisecond

// far reports whether the upstream is far, by the last measurement.
func (c *Client) far() bool {
	rtt, _ := c.health.RTT()
	return rtt >= farAfter
}
