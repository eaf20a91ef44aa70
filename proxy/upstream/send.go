package upstream

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/proxy/upstream/header"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// request returns the request to the upstream.
func (x *forwarding) request() (*http.Request, error) {
	u, err := x.url()
	if err != nil {
		return nil, err
	}
	if !httpguts.ValidHeaderFieldName(x.r.Method) { // a token, too
		return nil, apierrors.NewBadRequest("the request has a malformed method")
	}
	lines, err := x.header()
	if err != nil {
		return nil, err
	}
	req := &http.Request{
		Method: x.r.Method, URL: u, Host: x.c.base.Host, Header: lines,
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
		GetConn: func(string) { x.sent.Store(false) }, // again, see pool.Transport
		GotConn: func(info httptrace.GotConnInfo) {
			x.reused.Store(info.Reused)
			// Over HTTP/2 WroteHeaders comes after the head was written, and a canceled request does not
			// wait for that.
			x.sent.Store(true)
		},
	}
	return req.WithContext(httptrace.WithClientTrace(x.ctx, trace)), nil
}

// header returns the header for the upstream. An upstream in this process sees the client's address
// itself.
func (x *forwarding) header() (http.Header, error) {
	if x.c.local == nil {
		return header.Request(x.r, x.cred.identity())
	}
	r := *x.r
	r.RemoteAddr = ""
	return header.Request(&r, x.cred.identity())
}

// url returns the URL of the request at the upstream, with path and query as they came.
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
		// Other programs at the address of the upstream must not be reached.
		if hasDotSegment(x.r.Path) {
			return nil, apierrors.NewBadRequest("the request's path has dot segments")
		}
		path = prefix + path
	}
	// Opaque is written as it is, Path would be escaped again.
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Opaque: path, RawQuery: x.r.RawQuery}
	if strings.HasPrefix(path, "//") || x.c.absolute {
		// A path that would be taken for a host: servers must accept the absolute form, too (RFC 9112,
		// 3.2.2).
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

// request completes a forwarded request: the handler sees the client's connection.
func (l *local) request(x *forwarding, req *http.Request) *http.Request {
	if x.r.Host != "" {
		req.Host = x.r.Host
	}
	req.RemoteAddr = x.r.RemoteAddr
	// The handler may have seen the request, whatever fails from now on.
	x.sent.Store(true)
	ctx := x.ctx
	if x.cred.User != nil {
		ctx = l.WithUser(ctx, x.cred.User)
	}
	return req.WithContext(ctx)
}

// smallUpload is up to what size a body is read before its request is sent. It is sent with the
// head in one write then, where net/http would send the head by itself and make the upstream wait
// for the rest.
const smallUpload = 16 << 10

// collect reads the body of req if it is small.
func (x *forwarding) collect(req *http.Request) error {
	if x.upload == nil || req.ContentLength < 0 || req.ContentLength > smallUpload {
		return nil
	}
	if b, ok := x.r.Body.(interface{ SetReadDeadline(time.Time) error }); ok {
		if err := b.SetReadDeadline(time.Now().Add(x.c.limits.RequestTimeout)); err != nil {
			return err
		}
	}
	body := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(x.upload, body); err != nil {
		x.upload.failed.CompareAndSwap(nil, &err)
		return err
	}
	x.upload.over.Store(true)
	// net/http knows that these readers do not block.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	return nil
}

// roundTrip sends the request and waits for the head of the response.
func (x *forwarding) roundTrip(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if x.r.Method == http.MethodConnect || x.r.Method == http.MethodTrace {
		return nil, errMethod()
	}
	if err := x.c.health.Admit(); err != nil {
		return nil, err
	}
	e := &exchange{rt: rt, purpose: x.purpose, cancel: x.cancel, timeout: x.c.limits.RequestTimeout}
	if x.longRunning {
		e.timeout = 0
	}
	resp, err := x.c.exchange(req, e)
	if err != nil {
		if pool.Unprocessed(err) {
			x.sent.Store(false)
		}
		return nil, err
	}
	x.resp = resp
	if x.purpose == forOwn {
		x.c.rights.Responded(x.r.Method, x.r.Path, x.r.RawQuery, resp.StatusCode, nil)
	}
	return resp, nil
}

// errMethod is kube-apiserver's response to methods without a handler.
func errMethod() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{},
	}}
}
