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

// What TestMain makes and nobody replaces.
var (
	bed     *testbed.Testbed
	kube    *realkube.Cluster // the cluster of all tests
	program string            // the path of kubeweir
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

// startGatewayAt is startGateway for what reaches kube at another address.
func startGatewayAt(t *testing.T, upstream string, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{Upstream: upstream, ExtraArgs: args})
}

// deadline bounds a test, so that one that hangs fails by itself and says where.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test when a step did not work.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tlsConfig trusts the cluster's serving authority and presents cert, which may be nil.
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

// dial opens a TLS connection to url ("https://HOST:PORT") that speaks one protocol, "http/1.1" or "h2"; it is closed
// with the test.
func dial(t *testing.T, url string, cert *realkube.KeyPair, protocol string) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), tlsConfig(t, cert, protocol))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// An answer is a response whose body was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %.500s", a.status, a.body) }

// roundTrip sends the bytes of one HTTP/1.1 request as they are, so that nothing a library would refuse or mend is, and
// reads the answer.
func roundTrip(t *testing.T, conn net.Conn, raw string) answer {
	t.Helper()
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := io.WriteString(conn, raw)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// do sends a request with a bearer token ("" for none) over HTTP/2 or 1.1, whichever is negotiated, and reads the whole
// answer. A watch needs a timeoutSeconds.
func do(ctx context.Context, t *testing.T, url, token, method, path, body string) answer {
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
	var reached atomic.Value // how far it came, for when it hangs
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
	return answer{resp.StatusCode, resp.Header, string(b)}
}
