package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// TestMain sets these variables, and no test changes them.
var (
	bed     *testbed.Testbed
	kube    *realkube.Cluster // the cluster of all tests
	program string            // the path of the kubeweir binary
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{
		Kube:    realkube.Options{ExtraArgs: []string{"--authorization-mode=Node"}},
		Program: true,
		Prepare: func(_ context.Context, b *testbed.Testbed) error {
			bed, kube, program = b, b.Kube, b.Program
			return nil
		},
	})
}

// startGateway starts a gateway in front of kube that ends with the test.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return startGatewayAt(t, kube.URL(), args...)
}

// startGatewayAt is startGateway with another address of kube.
func startGatewayAt(t *testing.T, upstream string, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{Upstream: upstream, ExtraArgs: args})
}

// deadline returns a context that bounds the test, so that a test that hangs fails and says where.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tlsConfig returns a configuration that trusts the cluster's CA and presents cert, if not nil.
func tlsConfig(t *testing.T, cert *realkube.KeyPair, protocols ...string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: kube.ServingCAs(), NextProtos: protocols}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert.CertPEM, cert.KeyPEM)
		must(t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// dial opens a TLS connection to url ("https://HOST:PORT") with one protocol, "http/1.1" or "h2".
// It is closed at the end of the test.
func dial(t *testing.T, url string, cert *realkube.KeyPair, protocol string) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), tlsConfig(t, cert, protocol))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A response has its complete body.
type response struct {
	status int
	header http.Header
	body   string
}

func (a response) String() string { return fmt.Sprintf("%d %.500s", a.status, a.body) }

// roundTrip sends the raw bytes of one HTTP/1.1 request, which may be invalid, and reads the
// response.
func roundTrip(t *testing.T, conn net.Conn, raw string) response {
	t.Helper()
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := io.WriteString(conn, raw)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return response{resp.StatusCode, resp.Header, string(b)}
}

// do sends a request with a bearer token, if not "", over HTTP/2 or 1.1, as negotiated, and reads
// the whole response. A watch needs a timeoutSeconds.
func do(ctx context.Context, t *testing.T, url, token, method, path, body string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	var reached atomic.Value // progress, for the failure message
	reached.Store("not connected")
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone:          func(string, string, error) { reached.Store("connected") },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { reached.Store("TLS established") },
		WroteRequest:         func(httptrace.WroteRequestInfo) { reached.Store("request written") },
		GotFirstResponseByte: func() { reached.Store("answer begun") },
	})))
	if err != nil {
		t.Fatalf("%v (%s)", err, reached.Load())
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return response{resp.StatusCode, resp.Header, string(b)}
}
