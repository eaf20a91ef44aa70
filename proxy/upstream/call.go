package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/klauspost/compress/gzip"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

// call is one GET of the gateway's own.
type call struct {
	purpose  purpose
	rt       http.RoundTripper
	path     string // begins with a slash and is not escaped
	query    url.Values
	accept   string
	compress bool   // the response may be compressed
	etag     string // a 304 will do if the document still has this
}

// response is the response to a call. Its body is read through body, and it must be closed.
type response struct {
	*http.Response
	body *health.IdleReader
	conn *health.Conn // the feed connection, nil if it came over another one

	ctx    context.Context
	cancel context.CancelCauseFunc
	unlink func() bool // ctx from the client's
}

// get sends the call and waits for the head of the response, which must be closed.
func (c *Client) get(ctx context.Context, call *call) (*response, error) {
	if call.purpose.urgent() {
		if err := c.health.Admit(); err != nil {
			return nil, fmt.Errorf("GET %s: %w", call.path, err)
		}
	}
	a := &response{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.unlink = context.AfterFunc(c.ctx, func() { a.cancel(health.ErrClosed) })
	req := c.request(a, call)
	resp, err := c.exchange(req, &exchange{rt: call.rt, purpose: call.purpose, cancel: a.cancel, timeout: c.limits.RequestTimeout})
	if err != nil {
		a.unlink()
		a.cancel(nil)
		c.metrics.responded(call.purpose, http.MethodGet, 0, 0)
		return nil, fmt.Errorf("GET %s: %w", req.URL.Path, err)
	}
	a.Response = resp
	a.body = health.NewIdleReader(a.ctx, a.cancel, resp.Body, c.limits.StallTimeout)
	a.body.Received = c.metrics.received[call.purpose]
	c.rights.Responded(http.MethodGet, call.path, req.URL.RawQuery, resp.StatusCode, func() string {
		return status.Message(&a.body.ReadCloser, a.body)
	})
	if call.purpose.urgent() {
		a.body.Detector = c.health
	}
	return a, nil
}

// exchange determines how a request is sent.
type exchange struct {
	rt      http.RoundTripper
	purpose purpose
	cancel  context.CancelCauseFunc // of the request's context
	timeout time.Duration           // for the head of the response, 0 for none
}

// exchange sends a request and waits for the head of the response, which it reports to the failure
// detector and the metrics.
func (c *Client) exchange(req *http.Request, x *exchange) (*http.Response, error) {
	began := time.Now()
	waiting := c.health.Await(x.cancel, x.timeout)
	resp, err := x.rt.RoundTrip(req)
	waiting.Done(req.Context(), err)
	if err != nil {
		return nil, health.Cause(req.Context(), err)
	}
	c.metrics.responded(x.purpose, req.Method, resp.StatusCode, time.Since(began))
	return resp, nil
}

// request returns the request of a call whose response will be a.
func (c *Client) request(a *response, call *call) *http.Request {
	ctx := a.ctx
	if c.servers != nil && (call.purpose == forVersion || call.purpose == forDiscovery) {
		ctx = balance.Preferred(ctx) // what the feeds' server says counts
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.conn = health.FeedConn(info.Conn)
	}})
	encoding := "identity"
	if call.compress && c.compress {
		encoding = "gzip"
	}
	header := http.Header{"Accept": {call.accept}, "Accept-Encoding": {encoding}, "User-Agent": {c.agent}}
	if call.etag != "" {
		header.Set("If-None-Match", call.etag)
	}
	u := c.resourceURL(call.path, call.query)
	return (&http.Request{
		Method: http.MethodGet, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(ctx)
}

// resourceURL returns the URL of an own request for path, which is not escaped.
func (c *Client) resourceURL(path string, query url.Values) *url.URL {
	u := *c.base
	u.Path, u.RawPath = c.base.Path+path, ""
	u.RawQuery = query.Encode()
	return &u
}

// Read implements io.Reader.
func (a *response) Read(p []byte) (int, error) { return a.body.Read(p) }

// Close implements io.Closer.
func (a *response) Close() error {
	a.unlink()
	a.cancel(nil)
	return a.body.Close()
}

// rejection returns the error for a status other than 200.
func (a *response) rejection(verb string, gr schema.GroupResource) error {
	return status.Error(a.Response, a.body, verb, gr)
}

// decoded returns the body, decompressed.
func (a *response) decoded() (io.Reader, error) {
	switch coding := a.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return a.body, nil
	case "gzip":
		r, err := gzip.NewReader(a.body)
		if errors.Is(err, io.EOF) {
			return a.body, nil // an empty body is not gzip
		}
		return r, err
	default:
		return nil, fmt.Errorf("the upstream answers in the content encoding %q", coding)
	}
}

// getJSON returns the body of the preferred server's response for path.
func (c *Client) getJSON(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	a, err := c.get(ctx, &call{purpose: forDiscovery, rt: c.own.shared, path: path, query: query, accept: "application/json"})
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		defer func() { _ = a.Close() }()
		return nil, a.rejection("list", schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"})
	}
	if query.Get("watch") == "true" {
		a.body.Timeout = 0
	}
	return a, nil
}
