package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
	"github.com/kubeweir/kubeweir/proxy/upstream/status"
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
	body *health.IdleReader
	conn *health.Conn // the connection, if feeds come through it

	ctx    context.Context
	cancel context.CancelCauseFunc
	unlink func() bool // ctx from the client's
}

// do sends the call and waits for the response head. The answer must be closed.
func (c *Client) do(ctx context.Context, call *call) (*answer, error) {
	if call.purpose.urgent() {
		if err := c.health.Admit(); err != nil {
			return nil, fmt.Errorf("%s %s: %w", call.method, call.url.Path, err)
		}
	}
	a := &answer{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.unlink = context.AfterFunc(c.ctx, func() { a.cancel(health.ErrClosed) })
	if c.servers != nil && (call.purpose == forVersion || call.purpose == forDiscovery) {
		a.ctx = balance.Preferred(a.ctx) // the server of the feeds is meant
	}
	sends := c.sends()
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.conn = health.FeedConn(info.Conn)
		sends.GotConn(info, a.cancel)
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
	waiting := c.health.Await(a.cancel, c.limits.RequestTimeout)
	resp, err := call.rt.RoundTrip(req)
	waiting.Done(a.ctx, err)
	if err != nil {
		err = health.Cause(a.ctx, err)
		a.unlink()
		a.cancel(nil)
		c.metrics.answered(call.purpose, call.method, 0, 0)
		return nil, fmt.Errorf("%s %s: %w", call.method, call.url.Path, err)
	}
	c.metrics.answered(call.purpose, call.method, resp.StatusCode, time.Since(began))
	a.Response = resp
	a.body = health.NewIdleReader(a.ctx, a.cancel, resp.Body, c.limits.StallTimeout)
	a.body.Received = c.metrics.received[call.purpose]
	c.rights.answered(call.method, c.ownPath(call.url), call.url.RawQuery, resp.StatusCode, func() string {
		return refusalIn(&a.body.ReadCloser, a.body)
	})
	if call.purpose.urgent() {
		a.body.Detector = c.health
	}
	return a, nil
}

// close ends the call.
func (a *answer) close() {
	a.unlink()
	a.cancel(nil)
	_ = a.body.Close()
}

// sends bounds how often net/http sends a request of the gateway's own. It is nil, which has no bound,
// where each server has one.
func (c *Client) sends() *pool.SendLimit {
	if c.servers != nil {
		return nil
	}
	return pool.NewSendLimit(pool.MaxSends)
}

// getJSON reads what the preferred server has at path, until that is closed.
func (c *Client) getJSON(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	a, err := c.do(ctx, &call{
		purpose: forDiscovery, rt: c.own.shared, method: http.MethodGet, accept: "application/json", encoding: "identity",
		url: c.resourceURL(path, query),
	})
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		defer a.close()
		return nil, status.Error(a.Response, a.body, "list", schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"})
	}
	if query.Get("watch") == "true" {
		a.body.Timeout = 0
	}
	return answerBody{a}, nil
}

// answerBody is the body of an answer, which is closed with it.
type answerBody struct{ a *answer }

// Read implements io.Reader.
func (b answerBody) Read(p []byte) (int, error) { return b.a.body.Read(p) }

// Close implements io.Closer.
func (b answerBody) Close() error {
	b.a.close()
	return nil
}
