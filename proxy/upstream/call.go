package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"
)

// call is one request of the gateway's own.
type call struct {
	purpose purpose
	rt      http.RoundTripper
	method  string
	url     *url.URL
	accept  string
	// encoding is the Accept-Encoding.
	encoding string
	header   http.Header
	body     string // JSON
}

// answer is the response to a call. Its body is read through body, and it must be
// closed.
type answer struct {
	*http.Response
	body *guardedBody
	conn *feedConn // the connection, if feeds come through it

	ctx    context.Context
	cancel context.CancelCauseFunc
	unlink func() bool // ctx from the client's
}

var errHeadTimeout = errors.New("the upstream did not answer in time")

// do sends the call and waits for the response head. The answer must be closed.
func (c *Client) do(ctx context.Context, call *call) (*answer, error) {
	if call.purpose.urgent() && c.life.isGone() {
		return nil, fmt.Errorf("%s %s: %w", call.method, call.url.Path, errSilent)
	}
	a := &answer{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.unlink = context.AfterFunc(c.ctx, func() { a.cancel(errClosed) })
	if c.servers != nil && ctx.Value(routingKey{}) == nil && (call.purpose == forVersion || call.purpose == forDiscovery) {
		a.ctx = withRouting(a.ctx, &routing{preferred: true}) // the server of the feeds is meant
	}
	own := c.ownSends()
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.conn = tracked(info.Conn)
		own.sent(info, a.cancel)
	}}
	req := (&http.Request{
		Method: call.method, URL: call.url, Host: call.url.Host, Header: make(http.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(httptrace.WithClientTrace(a.ctx, trace))
	req.Header.Set("Accept", call.accept)
	req.Header.Set("Accept-Encoding", call.encoding)
	req.Header.Set("User-Agent", c.agent)
	for name, values := range call.header {
		req.Header[name] = values
	}
	if call.body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(call.body)), int64(len(call.body))
	}
	began := time.Now()
	waiting := c.life.wait(a.cancel, c.limits.RequestTimeout)
	resp, err := call.rt.RoundTrip(req)
	waiting.stop(a.ctx, err)
	if err != nil {
		err = causeOf(a.ctx, err)
		a.unlink()
		a.cancel(nil)
		c.metrics.answered(call.purpose, call.method, 0, 0)
		return nil, fmt.Errorf("%s %s: %w", call.method, call.url.Path, err)
	}
	c.metrics.answered(call.purpose, call.method, resp.StatusCode, time.Since(began))
	a.Response = resp
	a.body = newGuardedBody(a.ctx, a.cancel, resp.Body, c.limits.StallTimeout)
	a.body.received = c.metrics.received[call.purpose]
	c.rights.answered(call.method, c.ownPath(call.url), call.url.RawQuery, resp.StatusCode, func() string {
		return refusalIn(&a.body.ReadCloser, a.body)
	})
	if call.purpose.urgent() {
		a.body.life = c.life
	}
	return a, nil
}

// close ends the call.
func (a *answer) close() {
	a.unlink()
	a.cancel(nil)
	_ = a.body.Close()
}

// causeOf is why something failed: the reason why ctx was cancelled if it was,
// else err.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
