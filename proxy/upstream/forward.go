package upstream

import (
	"context"
	"net/http"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Forward passes r on to the upstream with the given credentials and returns the response
// unchanged, also an error. Requests for a protocol upgrade (exec, attach, port-forward, and
// WebSocket watches that the cache cannot serve) go to Upgrade. r's header has the lines that are
// for the upstream, see api.Header.EndToEnd.
//
// Path and query arrive byte for byte. Bodies are streamed both ways. Nothing is compressed or
// decompressed on the way, and redirects are passed to the client. r.Body may be read, from another
// goroutine, until the response is done.
//
// A write is sent once. A read is repeated when a pooled connection proves dead, and so is any
// request that HTTP/2 guarantees not to have been processed. Without a response the client gets a
// Status with code 503, as from kube-apiserver's aggregation layer, or 504 after
// Limits.RequestTimeout. For a write that may have been sent the message says that its outcome is
// unknown. If the client has left, the response has status 499 and no body.
//
// Watches, followed logs and proxied responses of unknown length are returned as a Stream, or as a
// BodyTo while the request's own body is still being sent. The end of a Stream is clean only if the
// upstream's was; otherwise it is aborted.
func (c *Client) Forward(ctx context.Context, r *api.Request, cred Credentials) *api.Response {
	if r.Upgrade != "" {
		return c.Upgrade(ctx, r, cred)
	}
	x := c.newForwarding(ctx, r, &cred)
	req, err := x.request()
	if err != nil {
		return x.rejectWith(err)
	}
	if err := x.collect(req); err != nil {
		return x.failed(err)
	}
	rt := x.transport()
	resp, err := x.roundTrip(rt, req)
	if err != nil && x.mayRepeat() {
		resp, err = x.roundTrip(rt, req)
	}
	if err != nil {
		return x.failed(err)
	}
	return x.respond(resp)
}

const (
	// sharedRequests is how many forwarded requests at a time may share connections with large
	// windows, which carry large responses over long distances. More of them, watches then, share
	// others.
	sharedRequests = 64
	// smallRequest is up to which size, in bytes, the body of a small request is.
	smallRequest = 16 << 10
)

// transport chooses how a request is sent. A short one gets an HTTP/1.1 connection of its own: over
// HTTP/2 it would pass through more goroutines on both sides, which costs a small request latency,
// and a large list a fifth more of kube-apiserver's CPU time. Long-running requests share HTTP/2
// connections, and so do requests beyond pool.MaxHTTP1, and writes where there are several servers.
//
// If the upstream is far, a new connection costs a small request more than all else: three round
// trips, each of which waits behind what a slow link carries, and the server's certificates. Small
// requests share a connection there, with nothing large.
func (x *forwarding) transport() http.RoundTripper {
	small := x.isSmall() && x.c.far()
	if !x.longRunning && !x.needsHTTP2() && !small {
		if x.direct = x.c.direct.Add(1) <= pool.MaxHTTP1; !x.direct {
			x.c.direct.Add(-1)
		}
	}
	x.shared = !x.direct
	narrow := x.shared && x.c.shared.Add(1) > sharedRequests || small
	t := &x.c.own
	if x.cred.As == AsClient {
		t = &x.c.anonymous
	}
	switch {
	case x.direct:
		return t.short
	case narrow:
		return t.narrow
	}
	return t.shared
}

// isSmall reports whether the request is about one object, so that it and its response are small.
func (x *forwarding) isSmall() bool {
	if x.longRunning || !x.info.IsResourceRequest || x.r.ContentLength < 0 || x.r.ContentLength > smallRequest {
		return false
	}
	switch x.info.Verb {
	case "get", "create", "update", "patch", "delete":
		return true
	}
	return false
}

// needsHTTP2 reports whether the server must be able to state that it has not processed the
// request: for a write, when another server could take it. HTTP/2 states this in GOAWAY. Over
// HTTP/1.1, a request that meets the close of an idle connection may or may not have been
// processed.
func (x *forwarding) needsHTTP2() bool { return x.c.servers != nil && !pool.Safe(x.r.Method) }

// mayRepeat reports whether a request that failed may be sent again: a read on a pooled connection,
// which the server may have closed meanwhile. If another server would get it, only a read that
// kube-apiserver itself responds to.
func (x *forwarding) mayRepeat() bool {
	if x.c.servers != nil && x.info.Subresource == "proxy" {
		return false
	}
	return pool.Safe(x.r.Method) && x.upload == nil && x.reused.Load() && x.ctx.Err() == nil
}
