package proxy

import (
	"context"
	"net"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// Usage is who costs what.
func (g *Gateway) Usage() *usage.Usage { return g.account.usage }

// usagePeriod is how often it is counted what open streams have sent.
const usagePeriod = time.Second

// CountUsage counts what open streams send, and ends those that are blocked or outdated, until
// ctx ends. It is called once.
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

// asker is who sends the request.
func (x *exchange) asker() usage.Client {
	a := usage.Client{UserAgent: x.Request.Header.Get("User-Agent")}
	if x.sender != nil {
		a.User = x.user()
	}
	if x.Info.IsResourceRequest {
		a.Resource = usage.Resource{Group: x.Info.APIGroup, Resource: x.Info.Resource, Subresource: x.Info.Subresource}
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

// What requests cost the processor, in nanoseconds, after docs/bench (a get from the cache takes
// some 43 us there, a list 0.6 to 0.8 ns a byte, an event that is delivered 4 to 9 us), and a
// run of each kind beside kube-apiserver, over HTTP/2:
//
//	                        bytes     measured  estimated
//	get from the cache      6,382        52 us      45 us
//	list from the cache     1,904,080  2000 us    1563 us
//	/version, forwarded     345         165 us     170 us
//	/openapi/v2, forwarded  2,229,434  3000 us    3514 us
//	get, collapsed          6,382       330 us     288 us
//	list, revalidated       1,904,080  2500 us    1870 us
const (
	requestPrice   = 40e3
	bytePrice      = 0.8
	forwardedByte  = 1.5   // it is received and sent
	collapsedPrice = 100e3 // more, of a request that is shared
	streamWrite    = 4.5e3
	askedPrice     = 130e3 // of a request to the upstream
	askedBytePrice = 2     // of what is read, and not only passed on
)

// work is what a request that is answered with n bytes costs the processor.
func (x *exchange) work(n int64) float64 {
	price := usage.Price{Request: requestPrice, Byte: bytePrice}
	switch x.source {
	case fromUpstream:
		price.Byte = forwardedByte
	case fromCollapsed:
		price.Request += collapsedPrice
	}
	return price.Of(1, n) + askedPrice*x.asked.Requests + askedBytePrice*x.asked.Bytes
}

// streamPrice is what a write to what goes on costs.
func (x *exchange) streamPrice() usage.Price {
	if x.source == fromUpstream {
		return usage.Price{Request: 2 * streamWrite, Byte: forwardedByte}
	}
	return usage.Price{Request: streamWrite, Byte: bytePrice}
}

// costOf is what a request has cost that is answered with n bytes.
func (x *exchange) costOf(resp *api.Response, n int64) usage.Cost {
	c := usage.Cost{
		Requests: 1, Bytes: n,
		UpstreamRequests: x.asked.Requests, UpstreamBytes: x.asked.Bytes,
		Work: x.work(n),
	}
	if resp.Status == 429 && x.source == fromGateway {
		c.Rejected = 1
	}
	if x.source == fromUpstream && resp.Stream == nil {
		c.UpstreamBytes += float64(n)
	}
	return c
}

// countStream counts a response that goes on, from its beginning on.
func (g *Gateway) countStream(x *exchange, resp *api.Response) {
	asker, options := x.asker(), usage.StreamOptions{Price: x.streamPrice(), Upstream: x.source == fromUpstream, Charge: x.Spending.ChargeStream(), Outdated: g.outdated(x), End: x.end}
	g.account.usage.Add(asker, x.costOf(resp, 0))
	if resp.Stream != nil {
		resp.Stream = countStream(resp.Stream, g.account.usage, asker, options)
		return
	}
	upgrade := resp.Upgrade
	resp.Upgrade = func(conn net.Conn) {
		options.End = func() { _ = conn.Close() }
		counted := &countedConn{conn, g.account.usage.Open(asker, options)}
		defer counted.stream.Close()
		upgrade(counted)
	}
}
