package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/api"
)

// patience bounds what should happen soon, on a machine that has much else to do as well.
const patience = time.Minute

// handlerFunc makes a handler of a function.
type handlerFunc func(ctx context.Context, r *api.Request) *api.Response

func (f handlerFunc) Serve(ctx context.Context, r *api.Request) *api.Response { return f(ctx, r) }

// text is a 200 with a body.
func text(body string) *api.Response {
	return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(body)}
}

// logBuffer collects what a server logs.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newServer makes a server of both protocols.
func newServer(o Options) (*Server, error) {
	o.HTTP1, o.HTTP2 = serveHTTP1, serveHTTP2
	return New(o)
}

// testServer is a server on loopback with both listeners.
type testServer struct {
	*Server
	t               testing.TB
	secure, sidecar string
	log             *logBuffer
	registry        *prometheus.Registry
	roots           *x509.CertPool
}

// startServer starts a server that ends with the test, which fails when a
// goroutine is left.
func startServer(t testing.TB, h handlerFunc, change ...func(*Options)) *testServer {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	ts := &testServer{t: t, log: &logBuffer{}, registry: prometheus.NewRegistry(), roots: x509.NewCertPool()}
	o := Options{
		Handler:       h,
		Listen:        "127.0.0.1:0",
		SidecarListen: "127.0.0.1:0",
		Logger:        slog.New(slog.NewTextHandler(ts.log, nil)),
		Registerer:    ts.registry,
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if ts.Server, err = newServer(o); err != nil {
		t.Fatal(err)
	}
	bound, err := ts.Start()
	if err != nil {
		t.Fatal(err)
	}
	if bound.Secure != nil {
		ts.secure = bound.Secure.String()
	}
	if bound.Sidecar != nil {
		ts.sidecar = bound.Sidecar.String()
	}
	if pem := ts.CAPEM(); pem != nil {
		ts.roots.AppendCertsFromPEM(pem)
	}
	t.Cleanup(func() {
		if ts.draining.Load() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = ts.Shutdown(ctx)
		switch t.(type) {
		case *testing.T: // fasthttp's server, in benchmarks, leaves goroutines
			leavesNothing(t, ignore)
			ts.holdsNothing()
		case *testing.F:
			ts.holdsNothing()
		}
	})
	return ts
}

// leavesNothing waits for the end of all goroutines but those of ignore. goleak itself waits
// for less than half a second.
func leavesNothing(t testing.TB, ignore goleak.Option) {
	t.Helper()
	err := goleak.Find(ignore)
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
		err = goleak.Find(ignore)
	}
	if err != nil {
		t.Error(err)
	}
}

// client is an HTTP client over TLS, for HTTP/2 or not.
func (ts *testServer) client(h2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:  h2,
		DisableCompression: true,
	}
	if !h2 {
		tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	ts.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// over runs a test over every protocol. url begins an address.
func over(t *testing.T, ts *testServer, f func(t *testing.T, c *http.Client, url string)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { f(t, ts.client(false), "http://"+ts.sidecar) })
	t.Run("tls", func(t *testing.T) { f(t, ts.client(false), "https://"+ts.secure) })
	t.Run("h2", func(t *testing.T) { f(t, ts.client(true), "https://"+ts.secure) })
}

// rawConn is a client that writes bytes.
type rawConn struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func (ts *testServer) dial() *rawConn {
	ts.t.Helper()
	nc, err := net.Dial("tcp", ts.sidecar)
	if err != nil {
		ts.t.Fatal(err)
	}
	return newRawConn(ts.t, nc)
}

func (ts *testServer) dialTLS() *rawConn {
	ts.t.Helper()
	nc, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	return newRawConn(ts.t, nc)
}

func newRawConn(t testing.TB, nc net.Conn) *rawConn {
	t.Helper()
	_ = nc.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = nc.Close() })
	return &rawConn{Conn: nc, t: t, br: bufio.NewReader(nc)}
}

// send writes a formatted text.
func (c *rawConn) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatalf("writing: %v", err)
	}
}

// expect reads exactly that.
func (c *rawConn) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.br, got)
	if string(got[:n]) != want {
		c.t.Fatalf("read %q (%v), want %q", got[:n], err, want)
	}
}

// response reads one response; body is read wholly.
func (c *rawConn) response(method string) (resp *http.Response, body string) {
	c.t.Helper()
	resp = c.head(method)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("reading the body: %v", err)
	}
	return resp, string(b)
}

// head reads the head of a response.
func (c *rawConn) head(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading the response: %v", err)
	}
	return resp
}

// ended waits for the end of the connection.
func (c *rawConn) ended() {
	c.t.Helper()
	rest, err := io.ReadAll(c.br)
	var ne net.Error
	if e, ok := err.(net.Error); ok { //nolint:errorlint // A test's look at the outermost.
		ne = e
	}
	if ne != nil && ne.Timeout() {
		c.t.Fatal("the connection is still open")
	}
	if len(rest) > 0 {
		c.t.Fatalf("unexpected %q", rest)
	}
}

// receive gets a value that should come soon.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

// gauge reads a metric of the server.
func (ts *testServer) gauge(name string, labels ...string) float64 {
	ts.t.Helper()
	families, err := ts.registry.Gather()
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
