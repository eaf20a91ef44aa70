package inprocess

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Transport sends requests to a handler. It is safe for concurrent use.
type Transport struct {
	client   http.Transport
	server   http.Server
	listener listener

	// requests holds the requests in flight, by their number in requestHeader.
	requests sync.Map
	last     atomic.Int64
	conns    context.Context // of all connections
	cancel   context.CancelFunc
	serving  sync.WaitGroup // the server's goroutine
	running  sync.WaitGroup // requests and handler calls
	mu       struct {
		sync.Mutex
		closed bool // whether running may no longer be added to
	}
}

var _ http.RoundTripper = (*Transport)(nil)

// ErrClosed is the error of requests after Close.
var ErrClosed = errors.New("in-process connection: closed")

// requestHeader identifies the request in Transport.requests to the server. The handler does not
// see it.
const requestHeader = "Kubeweir-In-Process-Request"

// bufferSize is the size of the client's buffers. The server writes large bodies without a buffer.
const bufferSize = 32 << 10

// New returns a transport to handler. log receives the handler's panics; nil discards them.
func New(handler http.Handler, log *slog.Logger) *Transport {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Transport{listener: listener{conns: make(chan net.Conn), closed: make(chan struct{})}}
	t.conns, t.cancel = context.WithCancel(context.Background())
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return t.listener.dial(ctx, t.conns) }
	t.client = http.Transport{
		DialContext: dial, DialTLSContext: dial,
		DisableCompression: true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout, WriteBufferSize: bufferSize, ReadBufferSize: bufferSize,
	}
	t.server = http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { t.serve(handler, w, req) }),
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), MaxHeaderBytes: maxHeader,
	}
	t.serving.Go(func() { _ = t.server.Serve(&t.listener) })
	return t
}

// maxHeader is more than clients are allowed to send.
const maxHeader = 32 << 20

// maxIdle is the maximum number of idle connections, idleTimeout how long each is kept open.
const (
	maxIdle     = 64
	idleTimeout = 30 * time.Second
)

// Close rejects further requests and waits until the handler has returned from all others. Their
// contexts must end for that.
func (t *Transport) Close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.running.Wait()
	_ = t.server.Close()
	t.cancel()
	t.serving.Wait()
}

// begin adds to running, unless the transport is closed.
func (t *Transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.closed {
		t.running.Add(1)
	}
	return !t.mu.closed
}

// RoundTrip implements http.RoundTripper. The handler sees the values of req's context, its
// RemoteAddr and its TLS (which may hold the certificates of the client that the request is
// forwarded for). The response body, also of an upgraded connection, ends with that context at the
// latest.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.begin() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, ErrClosed
	}
	defer t.running.Done()
	number := strconv.FormatInt(t.last.Add(1), 10)
	t.requests.Store(number, req)
	defer t.requests.Delete(number)
	out := req.Clone(req.Context())
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "")
	}
	out.Header.Set(requestHeader, number)
	resp, err := t.send(out)
	if err != nil {
		return nil, err
	}
	resp.Request = req
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		context.AfterFunc(req.Context(), func() { _ = conn.Close() })
	}
	return resp, nil
}

// send is client.RoundTrip, except that it does not wait for a blocked read of the body at the end
// of the context.
func (t *Transport) send(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return t.client.RoundTrip(req)
	}
	var resp *http.Response
	var err error
	done := make(chan struct{})
	t.running.Go(func() {
		defer close(done)
		if resp, err = t.client.RoundTrip(req); err == nil && req.Context().Err() != nil {
			_ = resp.Body.Close() // the caller may be gone
		}
	})
	select {
	case <-done:
		return resp, err
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

// serve calls the handler with the context of the client's request.
func (t *Transport) serve(handler http.Handler, w http.ResponseWriter, req *http.Request) {
	// net/http repeats a GET if the handler aborts; the handler must not be called again.
	v, ok := t.requests.LoadAndDelete(req.Header.Get(requestHeader))
	if !ok || !t.begin() {
		panic(http.ErrAbortHandler)
	}
	defer t.running.Done()
	sent := v.(*http.Request)
	req.Header.Del(requestHeader)
	req.Host, req.RemoteAddr, req.TLS = cmp.Or(sent.Host, sent.URL.Host), sent.RemoteAddr, sent.TLS
	handler.ServeHTTP(w, req.WithContext(values{req.Context(), sent.Context()}))
}

// values is a server's context with the values of the client's.
type values struct {
	context.Context
	client context.Context
}

// Value implements context.Context.
func (v values) Value(key any) any {
	if value := v.client.Value(key); value != nil {
		return value
	}
	return v.Context.Value(key)
}

// listener accepts connections in memory.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// dial returns a connection that is closed when all ends.
func (l *listener) dial(ctx, all context.Context) (net.Conn, error) {
	client, server := newConns()
	client.release = context.AfterFunc(all, client.end)
	err := ErrClosed
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = client.Close()
	return nil, err
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address }
