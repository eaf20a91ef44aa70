package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
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

// forwarding is one forwarded request and its response.
type forwarding struct {
	c       *Client
	r       *api.Request
	cred    *Credentials
	info    *api.RequestInfo
	purpose purpose
	// longRunning requests may take as long as they like.
	longRunning bool
	direct      bool // on a connection of its own
	shared      bool // on one that others share

	client context.Context // the client's
	// ctx is that of the request upstream. It ends with the client's context, watchAfter
	// later at most, until detach, and with the Client's.
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func()
	unlink func() bool

	upload *upload // nil without a body
	// sent is true once the request has a connection, which it may leave by at any moment,
	// unless it surely was not processed, reused when that had carried another request.
	sent, reused atomic.Bool
	sends        *pool.SendLimit // to a single server, else nil
	once         sync.Once       // end
	resp         *http.Response
}

func (c *Client) newForwarding(ctx context.Context, r *api.Request, cred *Credentials) *forwarding {
	x := &forwarding{c: c, r: r, info: r.Info(), cred: cred, client: ctx, purpose: cred.purpose(), sends: c.sends()}
	x.longRunning = x.info.LongRunning()
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.detach = whenLeft(ctx, func() { x.cancel(context.Cause(ctx)) })
	x.unlink = context.AfterFunc(c.ctx, func() { x.cancel(health.ErrClosed) })
	return x
}

// sharedRequests is how many forwarded requests at a time may share connections with
// large windows, which carry large answers over long distances. More of them, watches
// then, share others.
const sharedRequests = 64

// A slow client of a large forwarded response costs forwardWindow bytes, or, of the
// many beyond sharedRequests, narrowWindow: a thousand that stop reading cost 125 MiB.
const (
	forwardWindow = 1 << 20
	narrowWindow  = 64 << 10
)

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

// request is what is sent upstream.
func (x *forwarding) request() (*http.Request, error) {
	u, err := x.url()
	if err != nil {
		return nil, err
	}
	if !httpguts.ValidHeaderFieldName(x.r.Method) { // a token, too
		return nil, apierrors.NewBadRequest("the request has a malformed method")
	}
	header, err := x.header()
	if err != nil {
		return nil, err
	}
	req := &http.Request{
		Method: x.r.Method, URL: u, Host: x.c.base.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if x.r.Body != nil && x.r.ContentLength != 0 {
		x.upload = &upload{r: x.r.Body}
		req.Body, req.ContentLength = x.upload, x.r.ContentLength
	}
	if x.c.local != nil {
		return x.c.local.request(x, req), nil
	}
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { x.sent.Store(false) }, // again, see sends
		GotConn: func(info httptrace.GotConnInfo) {
			x.reused.Store(info.Reused)
			// Over HTTP/2 WroteHeaders comes after the head was written, and a cancelled
			// request does not wait for that.
			x.sent.Store(true)
			x.sends.GotConn(info, x.cancel)
		},
	}
	return req.WithContext(httptrace.WithClientTrace(x.ctx, trace)), nil
}

// header is the request's for the upstream. One in this process sees the client's
// address by itself.
func (x *forwarding) header() (http.Header, error) {
	if x.c.local == nil {
		return requestHeader(x.r, x.cred)
	}
	r := *x.r
	r.RemoteAddr = ""
	return requestHeader(&r, x.cred)
}

// url is the URL of the request at the upstream, with path and query as they came.
func (x *forwarding) url() (*url.URL, error) {
	base := x.c.base
	path := x.r.RawPath
	if path == "" {
		path = (&url.URL{Path: x.r.Path}).EscapedPath()
	}
	if path == "" || path[0] != '/' || !printable(path) || !printable(x.r.RawQuery) {
		return nil, apierrors.NewBadRequest("the request has a malformed path or query")
	}
	if prefix := base.EscapedPath(); prefix != "" {
		// Whatever else lives at the address of the upstream is not ours to reach.
		if hasDotSegment(x.r.Path) {
			return nil, apierrors.NewBadRequest("the request's path has dot segments")
		}
		path = prefix + path
	}
	// Opaque is written as it is, where Path would be escaped anew.
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Opaque: path, RawQuery: x.r.RawQuery}
	if strings.HasPrefix(path, "//") || x.c.absolute {
		// A path that would be taken for a host: servers must accept the absolute
		// form, too (RFC 9112, 3.2.2).
		u.Opaque = "//" + base.Host + path
	}
	return u, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// errMethod is kube-apiserver's answer to methods that it knows of no handler for.
func errMethod() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// roundTrip sends the request and waits for the head of the response.
func (x *forwarding) roundTrip(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if x.r.Method == http.MethodConnect || x.r.Method == http.MethodTrace {
		return nil, errMethod()
	}
	if err := x.c.health.Admit(); err != nil {
		return nil, err
	}
	most := x.c.limits.RequestTimeout
	if x.longRunning {
		most = 0
	}
	began := time.Now()
	waiting := x.c.health.Await(x.cancel, most)
	resp, err := rt.RoundTrip(req)
	waiting.Done(x.ctx, err)
	if err != nil {
		err = health.Cause(x.ctx, err)
		if pool.Unprocessed(err) {
			x.sent.Store(false)
		}
		return nil, err
	}
	x.resp = resp
	x.c.metrics.answered(x.purpose, x.r.Method, resp.StatusCode, time.Since(began))
	if x.purpose == forOwn {
		x.c.rights.answered(x.r.Method, x.r.Path, x.r.RawQuery, resp.StatusCode, nil)
	}
	return resp, nil
}

// mayRepeat reports whether a request that failed may be sent again: a read that
// went to a pooled connection, which the server may have closed meanwhile. Where another
// server would get it, only one that kube-apiserver itself answers.
func (x *forwarding) mayRepeat() bool {
	if x.c.servers != nil && x.info.Subresource == "proxy" {
		return false
	}
	return pool.Safe(x.r.Method) && x.upload == nil && x.reused.Load() && x.ctx.Err() == nil
}

// end gives everything up. It may be called more than once and at any time.
func (x *forwarding) end() {
	x.once.Do(func() {
		x.detach()
		x.unlink()
		x.cancel(nil)
		if x.direct {
			x.c.direct.Add(-1)
		}
		if x.shared {
			x.c.shared.Add(-1)
		}
		if x.upload != nil {
			x.upload.over.Store(true)
		}
		if x.resp != nil {
			_ = x.resp.Body.Close()
		}
	})
}

// broke counts a response that ended before its end.
func (x *forwarding) broke(err error) error {
	x.c.metrics.broken.WithLabelValues(string(x.purpose)).Inc()
	return fmt.Errorf("response of the upstream: %w", err)
}

// left reports whether the client has.
func (x *forwarding) left() bool { return x.client.Err() != nil }
