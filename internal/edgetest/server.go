//go:build unix

package edgetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// Timeout is the timeout of things that should happen soon, on a machine under load.
const Timeout = time.Minute

// HandlerFunc is a handler that calls a function.
type HandlerFunc func(ctx context.Context, r *api.Request) *api.Response

func (f HandlerFunc) Serve(ctx context.Context, r *api.Request) *api.Response { return f(ctx, r) }

// Text returns a 200 with a body.
func Text(body string) *api.Response {
	return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(body)}
}

// LogBuffer records what a server logs.
type LogBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// HTTP1 and HTTP2 serve connections: a test package sets them to h1.Serve and h2.Serve.
var HTTP1, HTTP2 func(*edge.Conn)

// NewServer returns a server of both protocols.
func NewServer(o edge.Options) (*edge.Server, error) {
	if o.GetCertificate == nil {
		o.GetCertificate = GetCertificate
	}
	return edge.New(o, edge.Protocols{HTTP1: HTTP1, HTTP2: HTTP2})
}

// Server is a server on loopback with both listeners.
type Server struct {
	*edge.Server
	t               testing.TB
	Secure, Sidecar string
	Log             *LogBuffer
	Registry        *prometheus.Registry
	Roots           *x509.CertPool
	// Writes counts the writes to TLS connections of ServeInBubble.
	Writes *atomic.Int32
}

// Start starts a server that ends with the test. The test fails if a goroutine is left.
func Start(t testing.TB, h HandlerFunc, change ...func(*edge.Options)) *Server {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	ts := &Server{t: t, Log: &LogBuffer{}, Registry: prometheus.NewRegistry(), Roots: x509.NewCertPool()}
	o := edge.Options{
		Handler:       h,
		Listen:        "127.0.0.1:0",
		SidecarListen: "127.0.0.1:0",
		Logger:        slog.New(slog.NewTextHandler(ts.Log, nil)),
		Registerer:    ts.Registry,
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if ts.Server, err = NewServer(o); err != nil {
		t.Fatal(err)
	}
	bound, err := ts.Start()
	if err != nil {
		t.Fatal(err)
	}
	if bound.Secure != nil {
		ts.Secure = bound.Secure.String()
	}
	if bound.Sidecar != nil {
		ts.Sidecar = bound.Sidecar.String()
	}
	ts.Roots.AppendCertsFromPEM(CertificatePEM())
	t.Cleanup(func() {
		if ts.Draining.Load() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = ts.Shutdown(ctx)
		switch t.(type) {
		case *testing.T: // fasthttp's server, used in benchmarks, leaves goroutines
			leavesNothing(t, ignore)
			ts.HoldsNothing()
		case *testing.F:
			ts.HoldsNothing()
		}
	})
	return ts
}

// leavesNothing waits for the end of all goroutines except those of ignore. goleak itself waits for
// less than half a second.
func leavesNothing(t testing.TB, ignore goleak.Option) {
	t.Helper()
	err := goleak.Find(ignore)
	for end := time.Now().Add(Timeout); err != nil && time.Now().Before(end); {
		err = goleak.Find(ignore)
	}
	if err != nil {
		t.Error(err)
	}
}

// Client returns an HTTP client over TLS, with or without HTTP/2.
func (ts *Server) Client(h2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: ts.Roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:  h2,
		DisableCompression: true,
	}
	if !h2 {
		tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	ts.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: Timeout}
}

// Over runs a test over every protocol. url is the beginning of a URL.
func Over(t *testing.T, ts *Server, f func(t *testing.T, c *http.Client, url string)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { f(t, ts.Client(false), "http://"+ts.Sidecar) })
	t.Run("tls", func(t *testing.T) { f(t, ts.Client(false), "https://"+ts.Secure) })
	t.Run("h2", func(t *testing.T) { f(t, ts.Client(true), "https://"+ts.Secure) })
}

func (ts *Server) Dial() *RawConn {
	ts.t.Helper()
	nc, err := net.Dial("tcp", ts.Sidecar)
	if err != nil {
		ts.t.Fatal(err)
	}
	return NewRawConn(ts.t, nc)
}

func (ts *Server) DialTLS() *RawConn {
	ts.t.Helper()
	nc, err := tls.Dial("tcp", ts.Secure, &tls.Config{RootCAs: ts.Roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	return NewRawConn(ts.t, nc)
}

// Receive receives a value that should arrive soon.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Timeout):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

// Gauge reads a metric of the server.
func (ts *Server) Gauge(name string, labels ...string) float64 {
	ts.t.Helper()
	families, err := ts.Registry.Gather()
	if err != nil {
		ts.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			values := make([]string, 0, len(labels))
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// Holds waits until at least least and at most most bytes are buffered.
func (ts *Server) Holds(least, most int64) {
	ts.t.Helper()
	for end := time.Now().Add(Timeout); ; time.Sleep(time.Millisecond) {
		held, _, _ := ts.Buffers.Usage()
		if held >= least && held <= most {
			return
		}
		if time.Now().After(end) {
			ts.t.Fatalf("%d bytes are held, want %d to %d", held, least, most)
		}
	}
}

// HoldsNothing waits until no buffer is in use and nothing waits for one.
func (ts *Server) HoldsNothing() {
	ts.t.Helper()
	for end := time.Now().Add(Timeout); ; time.Sleep(time.Millisecond) {
		held, unread, waiting := ts.Buffers.Usage()
		if held == 0 && unread == 0 && waiting == 0 {
			return
		}
		if time.Now().After(end) {
			ts.t.Fatalf("%d bytes are held, %d unread, %d wait", held, unread, waiting)
		}
	}
}

// Held, Unread and Waiting return how much of the server's budgets is in use.
func (ts *Server) Held() int64    { held, _, _ := ts.Buffers.Usage(); return held }
func (ts *Server) Unread() int64  { _, unread, _ := ts.Buffers.Usage(); return unread }
func (ts *Server) Waiting() int64 { _, _, waiting := ts.Buffers.Usage(); return waiting }

// Narrow is a listener whose connections buffer little unread data.
type Narrow struct{ net.Listener }

func (n Narrow) Accept() (net.Conn, error) {
	nc, err := n.Listener.Accept()
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetWriteBuffer(4 << 10)
	}
	return nc, err
}

// NarrowSocket limits a socket's unread data from its first window on.
func NarrowSocket(_, _ string, raw syscall.RawConn) error {
	var err error
	failed := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) //nolint:gosec // a descriptor
	})
	return errors.Join(failed, err)
}

// ServeNarrow returns a function that dials such a connection.
func (ts *Server) ServeNarrow() (dial func() *FrameConn) {
	ts.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	if err := ts.Serve(Narrow{ln}, api.ListenerSidecar); err != nil {
		ts.t.Fatal(err)
	}
	return func() *FrameConn {
		ts.t.Helper()
		conn, err := (&net.Dialer{Control: NarrowSocket}).Dial("tcp", ln.Addr().String())
		if err != nil {
			ts.t.Fatal(err)
		}
		ts.t.Cleanup(func() { _ = conn.Close() })
		return NewFrameConn(ts.t, conn)
	}
}

func (ts *Server) DialH2() *tls.Conn {
	ts.t.Helper()
	conn, err := tls.Dial("tcp", ts.Secure, &tls.Config{RootCAs: ts.Roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (ts *Server) DialFrames(settings ...http2.Setting) *FrameConn {
	ts.t.Helper()
	return NewFrameConn(ts.t, ts.DialH2(), settings...)
}
