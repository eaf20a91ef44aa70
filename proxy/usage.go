package proxy

import (
	"context"
	"net"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Usage returns the usage by client.
func (g *Gateway) Usage() *usage.Usage { return g.account.usage }

// usagePeriod is the interval at which the bytes of open streams are counted.
const usagePeriod = time.Second

// CountUsage counts what open streams send, and ends those that are blocked or outdated, until ctx
// ends. It is called once.
func (g *Gateway) CountUsage(ctx context.Context) {
	ticker := time.NewTicker(usagePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			g.account.usage.Tick(now)
			g.endStreams()
		}
	}
}

// client returns the client of the request, for usage.
func (x *exchange) client() usage.Client {
	a := usage.Client{UserAgent: x.Request.Header.Get("User-Agent")}
	if x.sender != nil {
		a.User = x.user()
	}
	if x.Info.IsResourceRequest {
		a.Resource = usage.Resource{Group: x.Info.APIGroup, Resource: x.Info.Resource, Subresource: x.Info.Subresource}
	}
	return a
}

// reviewBytes is the estimated size of a review, with its response.
const reviewBytes = 2 << 10

// countReviews adds reviews that were made for the request to its cost.
func (x *exchange) countReviews(n float64) {
	if n > 0 {
		x.cost.Requests += n
		x.cost.Bytes += n * reviewBytes
	}
}

// work estimates the CPU time of a request with a response of n bytes.
func (x *exchange) work(n int64) float64 {
	price := usage.Price{Request: usage.RequestPrice, Byte: usage.BytePrice}
	switch x.source {
	case response.FromUpstream:
		price.Byte = usage.ForwardedBytePrice
	case response.FromCollapsed:
		price.Request += usage.CoalescedPrice
	}
	return price.Of(1, n) + usage.UpstreamRequestPrice*x.cost.Requests + usage.UpstreamBytePrice*x.cost.Bytes
}

// streamPrice returns the estimated CPU time of a write to a stream.
func (x *exchange) streamPrice() usage.Price {
	if x.source == response.FromUpstream {
		return usage.Price{Request: 2 * usage.WritePrice, Byte: usage.ForwardedBytePrice}
	}
	return usage.Price{Request: usage.WritePrice, Byte: usage.BytePrice}
}

// costOf returns what a request with a response of n bytes has cost.
func (x *exchange) costOf(resp *api.Response, n int64) usage.Cost {
	c := usage.Cost{
		Requests: 1, Bytes: n,
		UpstreamRequests: x.cost.Requests, UpstreamBytes: x.cost.Bytes,
		Work: x.work(n),
	}
	if resp.Status == 429 && x.source == response.FromGateway {
		c.Rejected = 1
	}
	if x.source == response.FromUpstream && resp.Stream == nil {
		c.UpstreamBytes += float64(n)
	}
	return c
}

// countStream counts a streaming response from its beginning.
func (g *Gateway) countStream(x *exchange, resp *api.Response) {
	client, options := x.client(), usage.StreamOptions{Price: x.streamPrice(), Upstream: x.source == response.FromUpstream, Charge: x.Budgets.ChargeStream(), Outdated: g.outdated(x), End: x.end}
	g.account.usage.Add(client, x.costOf(resp, 0))
	if resp.Stream != nil {
		resp.Stream = g.account.usage.CountStream(resp.Stream, client, options)
		return
	}
	upgrade := resp.Upgrade
	resp.Upgrade = func(conn net.Conn) {
		options.End = func() { _ = conn.Close() }
		counted, done := g.account.usage.CountConn(conn, client, options)
		defer done()
		upgrade(counted)
	}
}
