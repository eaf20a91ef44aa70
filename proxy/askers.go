package proxy

import (
	"context"
	"net"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Usage is who costs what.
func (g *Gateway) Usage() *usage.Usage { return g.usage }

// usagePeriod is how often it is counted what open streams have sent.
const usagePeriod = time.Second

// CountUsage counts what goes on, and ends it where its user agent is blocked, until ctx ends.
// It is called once.
func (g *Gateway) CountUsage(ctx context.Context) {
	ticker := time.NewTicker(usagePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			g.usage.Tick(now)
			g.endBlocked()
		}
	}
}

// asker is who sends the request.
func (x *exchange) asker() usage.Asker {
	a := usage.Asker{UserAgent: x.request.Header.Get("User-Agent")}
	if x.sender != nil {
		a.User = x.user()
	}
	if x.info.IsResourceRequest {
		a.Resource = usage.Resource{Group: x.info.APIGroup, Resource: x.info.Resource, Subresource: x.info.Subresource}
	}
	return a
}

// reviewBytes is what a review is taken to send and bring.
const reviewBytes = 2 << 10

// askedReviews counts reviews that were made for the request.
func (x *exchange) askedReviews(n float64) {
	if n > 0 {
		x.asked.Requests += n
		x.asked.Bytes += n * reviewBytes
	}
}

// price is what a request costs the processor, by the way that it is answered. They were
// measured: see TestPrices in test/bench.
func (x *exchange) price() usage.Price {
	switch x.source {
	case fromCache:
		return usage.Price{Request: 25e3, Byte: 1}
	case fromUpstream:
		return usage.Price{Request: 120e3, Byte: 2.5}
	case fromCollapsed:
		return usage.Price{Request: 50e3, Byte: 1.5}
	case fromRevalidated:
		return usage.Price{Request: 120e3, Byte: 1}
	}
	return usage.Price{Request: 20e3, Byte: 1}
}

// writePrice is what a write to an open stream costs.
func writePrice() usage.Price { return usage.Price{Request: 10e3, Byte: 1} }

// askedByte is what a byte costs that the upstream was asked for to answer somebody: names and
// versions that are compared, an answer that is shared.
const askedByte = 5

// costOf is what a request has cost that is answered with n bytes.
func (x *exchange) costOf(resp *api.Response, n int64) usage.Cost {
	price := x.price()
	c := usage.Cost{
		Requests: 1, Bytes: n,
		UpstreamRequests: x.asked.Requests, UpstreamBytes: x.asked.Bytes,
		Work: price.Of(1, n) + askedByte*x.asked.Bytes,
	}
	if resp.Status == 429 && x.source == fromGateway {
		c.Refused = 1
	}
	if x.source == fromUpstream && resp.Stream == nil {
		c.UpstreamBytes += float64(n)
	}
	return c
}

// countStream counts a response that goes on, from its beginning on.
func (g *Gateway) countStream(x *exchange, resp *api.Response) {
	asker, options := x.asker(), usage.StreamOptions{Price: writePrice(), Upstream: x.source == fromUpstream, Charge: x.chargeStream(), End: x.end}
	g.usage.Add(asker, x.costOf(resp, 0))
	if resp.Stream != nil {
		resp.Stream = countStream(resp.Stream, g.usage, asker, options)
		return
	}
	upgrade := resp.Upgrade
	resp.Upgrade = func(conn net.Conn) {
		options.End = func() { _ = conn.Close() }
		counted := &countedConn{conn, g.usage.Open(asker, options)}
		defer counted.stream.Close()
		upgrade(counted)
	}
}
