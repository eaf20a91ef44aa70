package upstream

import (
	"context"
	"net/http"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Forward passes r on to the upstream with the given credentials and returns its
// answer, also an error, as it is; a request for a protocol upgrade, as exec,
// attach, port-forward and the WebSocket watches that the cache cannot serve are, goes
// to Upgrade. r's header has the lines that are for the upstream, see
// api.Header.EndToEnd.
//
// Path and query arrive byte for byte. Bodies are streamed both ways; nothing is
// compressed or decompressed on the way, and redirects are handed to the client.
// r.Body may be read, from another goroutine, until the response is done.
//
// A write is sent once. Only a read is repeated, when a pooled connection proves
// dead, and what HTTP/2 guarantees not to have been processed. Without an
// answer the client gets a Status with code 503, as from kube-apiserver's
// aggregation layer, or 504 after Limits.RequestTimeout; for a write that may have
// been sent the message says that nobody knows whether it was applied. A client
// that has left gets nothing: the response has status 499 and no body.
//
// Watches, followed logs and proxied responses of unknown length are returned as a
// Stream, or as a BodyTo while the request's own body is still under way. The end
// of a Stream is clean only if the upstream's was; otherwise it is aborted.
func (c *Client) Forward(ctx context.Context, r *api.Request, cred Credentials) *api.Response {
	if r.Upgrade != "" {
		return c.Upgrade(ctx, r, cred)
	}
	x := c.newForwarding(ctx, r, &cred)
	req, err := x.request()
	if err != nil {
		return x.refuse(err)
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

// sharedRequests is how many forwarded requests at a time may share connections with
// large windows, which carry large answers over long distances. More of them, watches
// then, share others.
const sharedRequests = 64

// smallRequest is up to which size, in bytes, the body of a small request is.
const smallRequest = 16 << 10

// transport chooses how a request is sent. One that is soon over gets a connection
// of its own over HTTP/1.1: over HTTP/2 it would pass through more goroutines on
// both sides, which costs a small one latency and a large list a fifth more of
// kube-apiserver's processor time. Those that last share HTTP/2 connections, and
// so does what exceeds pool.MaxHTTP1, and writes where there are several servers.
//
// Where the upstream is far, a new connection costs a small request more than all else:
// three round trips, each of which waits its turn behind what a slow link carries, and
// the server's certificates. Small ones share a connection there, with nothing large.
func (x *forwarding) transport() http.RoundTripper {
	// A handler that still waits for its client's body is not waited for in turn.
	if x.c.local != nil && !x.longRunning && writesOne(x.info) && x.upload.sent() {
		return x.c.local.whole
	}
	small := x.aboutOne() && x.c.far()
	if !x.longRunning && !x.handedOver() && !small {
		if x.direct = x.c.direct.Add(1) <= pool.MaxHTTP1; !x.direct {
			x.c.direct.Add(-1)
		}
	}
	x.shared = !x.direct
	narrow := x.shared && x.c.shared.Add(1) > sharedRequests || small
	switch asClient := x.cred.As == AsClient; {
	case asClient && x.direct:
		return x.c.anonymous.short
	case asClient && narrow:
		return x.c.anonymous.narrow
	case asClient:
		return x.c.anonymous.shared
	case x.direct:
		return x.c.own.short
	case narrow:
		return x.c.own.narrow
	}
	return x.c.own.shared
}

// aboutOne reports whether the request is about one object, and so small, as its answer is.
func (x *forwarding) aboutOne() bool {
	if x.longRunning || !x.info.IsResourceRequest || x.r.ContentLength < 0 || x.r.ContentLength > smallRequest {
		return false
	}
	switch x.info.Verb {
	case "get", "create", "update", "patch", "delete":
		return true
	}
	return false
}

// handedOver reports whether a request has to be of those of which a server that shuts down
// says whether it saw them: a write, where another server could take it. HTTP/2 says so
// (GOAWAY); over HTTP/1.1 it may have met the close of an idle connection, or not.
func (x *forwarding) handedOver() bool { return x.c.servers != nil && !pool.Safe(x.r.Method) }

// mayRepeat reports whether a request that failed may be sent again: a read that
// went to a pooled connection, which the server may have closed meanwhile. Where another
// server would get it, only one that kube-apiserver itself answers.
func (x *forwarding) mayRepeat() bool {
	if x.c.servers != nil && x.info.Subresource == "proxy" {
		return false
	}
	return pool.Safe(x.r.Method) && x.upload == nil && x.reused.Load() && x.ctx.Err() == nil
}
