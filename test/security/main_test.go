package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startTime covers building etcd, kube-apiserver, kubectl and the gateway, the first time.
const startTime = 25 * time.Minute

// What TestMain makes and nobody replaces.
var (
	kube    *realkube.Cluster // the cluster of all tests
	program string            // the path of kubeweir
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	// client-go tells every failed attempt, and failing is what these tests make it do.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var err error
	// Before the tests, whose deadlines are for what they do.
	if program, err = realkube.BuildGateway(ctx); err != nil {
		return 0, err
	}
	if kube, err = realkube.Start(ctx, realkube.Options{ExtraArgs: []string{"--authorization-mode=Node"}}); err != nil {
		return 0, err
	}
	defer func() { _ = kube.Close() }()
	return m.Run(), nil
}

// startGateway starts a gateway in front of kube that ends with the test and must not panic. What it printed is shown
// when the test fails.
func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return startGatewayAt(t, kube.URL(), args...)
}

// startGatewayAt is startGateway for what reaches kube at another address.
func startGatewayAt(t *testing.T, upstream string, args ...string) *realkube.Gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	g, err := realkube.StartGatewayWith(ctx, kube, realkube.GatewayOptions{Path: program, Upstream: upstream, ExtraArgs: args})
	must(t, err)
	t.Cleanup(func() {
		panicked := g.Panicked()
		g.Close()
		if panicked {
			t.Error("the gateway panicked")
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimRight(g.Log(), "\n"), "\n")
			t.Logf("end of the gateway's log:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return g
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
	ca, err := os.ReadFile(kube.ServingCAFile())
	must(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in the serving authority's file")
	}
	cfg := &tls.Config{RootCAs: pool, NextProtos: protocols}
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
