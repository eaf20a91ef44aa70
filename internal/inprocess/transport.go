package inprocess

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Transport calls a handler. It is safe for concurrent use.
type Transport struct {
	handler http.Handler
	log     *slog.Logger

	running sync.WaitGroup // calls of the handler
	mu      struct {
		sync.Mutex
		closed bool // nothing is added to running any more
	}
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a transport to handler. log takes the handler's panics; nil discards
// them.
func New(handler http.Handler, log *slog.Logger) *Transport {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Transport{handler: handler, log: log}
}

// ErrClosed is the error of requests after Close.
var ErrClosed = errors.New("in-process connection: closed")

// Close refuses further requests and waits until the handler has returned from
// all others, whose contexts must end for that.
func (t *Transport) Close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.running.Wait()
}

// begin counts a call of the handler, unless the transport is closed.
func (t *Transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.closed {
		t.running.Add(1)
	}
	return !t.mu.closed
}

// RoundTrip implements http.RoundTripper. The handler sees the request as a server
// would have read it, with req's context, RemoteAddr and TLS (which may hold the
// certificates of whoever the request is passed on for). The body of the response,
// also when it is an upgraded connection, ends at the latest with that context.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, served, err := t.open(req)
	if err != nil {
		return nil, err
	}
	go x.serve(served)
	select {
	case <-x.ready:
	case <-req.Context().Done():
		// The handler learns of it by its own context.
		return nil, context.Cause(req.Context())
	}
	if x.hijacked != nil {
		return x.switchedResponse()
	}
	return x.resp, x.err
}

// Whole returns a transport to the same handler for requests that are soon over and
// whose response is not large. It calls the handler in the goroutine of its caller,
// which spares a goroutine whose stack would have to grow, and so waits for the
// handler, also when the request's context ends; what the handler flushes is
// collected with the rest, up to 64 MiB, and it cannot take the connection over.
func (t *Transport) Whole() http.RoundTripper { return whole{t} }

type whole struct{ t *Transport }

// RoundTrip implements http.RoundTripper.
func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	x, served, err := w.t.open(req)
	if err != nil {
		return nil, err
	}
	x.whole = true
	x.serve(served)
	return x.resp, x.err
}

// open begins a call of the handler, which serve makes and ends.
func (t *Transport) open(req *http.Request) (*call, *http.Request, error) {
	x := &call{t: t, client: req, ready: make(chan struct{})}
	x.ctx, x.cancel = context.WithCancel(req.Context())
	served, err := x.request()
	if err == nil && !t.begin() {
		err = ErrClosed
	}
	if err != nil {
		x.cancel()
		x.closeBody()
		return nil, nil, err
	}
	return x, served, nil
}

// call is one call of the handler.
type call struct {
	t      *Transport
	client *http.Request
	ctx    context.Context // the handler's
	cancel context.CancelFunc
	body   sync.Once // closes the request's body
	whole  bool      // the response is collected whole

	// ready is closed when one of these is set, and they do not change any more.
	ready    chan struct{}
	resp     *http.Response
	err      error
	hijacked *conn       // the client's end, whose first bytes are the response
	unlink   func() bool // it from the client's context
}

// request is the client's as the handler is to see it.
func (x *call) request() (*http.Request, error) {
	in := x.client
	uri := in.URL.RequestURI()
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, fmt.Errorf("in-process request: %w", err)
	}
	host := in.Host
	if host == "" {
		host = in.URL.Host
	}
	header := in.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	out := &http.Request{
		Method: in.Method, URL: u, RequestURI: uri, Host: host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, RemoteAddr: in.RemoteAddr, TLS: in.TLS,
	}
	if out.Method == "" {
		out.Method = http.MethodGet
	}
	if in.Body != nil && in.Body != http.NoBody {
		out.Body, out.ContentLength = &requestBody{x: x}, in.ContentLength
		if in.ContentLength <= 0 {
			out.ContentLength, out.TransferEncoding = -1, []string{"chunked"}
		}
	}
	return out.WithContext(x.ctx), nil
}

func (x *call) closeBody() {
	x.body.Do(func() {
		if x.client.Body != nil {
			_ = x.client.Body.Close()
		}
	})
}

// requestBody is the client's body as the handler reads it. It is closed as soon
// as it has been read, which tells the client that nothing reads it any more.
type requestBody struct {
	x    *call
	read int64 // only the handler's
	end  error
	over atomic.Bool // the handler has returned or closed it
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	if b.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.x.client.Body.Read(p)
	length := b.x.client.ContentLength
	b.read += int64(n)
	if errors.Is(err, io.EOF) && length > 0 && b.read < length {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && length > 0 && b.read >= length {
		err = io.EOF
	}
	if err != nil {
		b.end = err
		b.x.closeBody()
	}
	return n, err
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.over.Store(true)
	b.x.closeBody()
	return nil
}

// errAborted is what the client gets of a handler that panics.
var errAborted = fmt.Errorf("in-process connection: the handler aborted: %w", io.ErrUnexpectedEOF)

// serve calls the handler.
func (x *call) serve(req *http.Request) {
	defer x.t.running.Done()
	w := &responseWriter{x: x, header: make(http.Header), head: req.Method == http.MethodHead, declared: -1}
	defer x.cancel()
	defer func() { _ = req.Body.Close() }()
	defer func() {
		p := recover()
		if p == nil {
			w.finish()
			return
		}
		if p != any(http.ErrAbortHandler) {
			x.t.log.Error("panic while serving", "method", req.Method, "path", req.URL.Path, "panic", p, "stack", string(debug.Stack()))
		}
		w.abort(errAborted)
	}()
	x.t.handler.ServeHTTP(w, req)
}

// answer publishes the response.
func (x *call) answer(resp *http.Response, err error) {
	x.resp, x.err = resp, err
	close(x.ready)
}

// switchedResponse reads the response that the handler writes to the connection
// that it took over.
func (x *call) switchedResponse() (*http.Response, error) {
	end := &switched{conn: x.hijacked, ahead: bufio.NewReader(x.hijacked), unlink: x.unlink}
	resp, err := http.ReadResponse(end.ahead, x.client)
	if err != nil {
		_ = end.Close()
		if cause := context.Cause(x.client.Context()); cause != nil {
			err = cause
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = end
	} else {
		resp.Body = &lastBody{resp.Body, end}
	}
	return resp, nil
}

// lastBody is the body of the last response of a connection.
type lastBody struct {
	io.ReadCloser
	end io.Closer
}

// Close implements io.Closer.
func (b *lastBody) Close() error {
	_ = b.ReadCloser.Close()
	return b.end.Close()
}
