package upstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

func TestMain(m *testing.M) {
	if os.Getenv(pluginVariable) != "" {
		runPlugin()
		return
	}
	// The SPDY library leaves this behind for a while when the peer is gone.
	spdy := goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown")
	code := m.Run()
	if code == 0 {
		err := goleak.Find(spdy) // which waits for less than half a second
		for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find(spdy)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// tokenProtocol begins the WebSocket subprotocol that carries a bearer token, see package header.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// server is a fake upstream over TLS that asks for client certificates and takes
// any.
type server struct {
	*httptest.Server
	handler http.Handler
	seen    struct {
		sync.Mutex
		requests []*http.Request // without their bodies
	}
}

type serverOption func(*httptest.Server)

func http1Only(s *httptest.Server) { s.EnableHTTP2 = false }

func newServer(t testing.TB, handler http.HandlerFunc, options ...serverOption) *server {
	t.Helper()
	s := &server{handler: handler}
	s.Server = httptest.NewUnstartedServer(s)
	meet(t, s.Server)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	for _, o := range options {
		o(s.Server)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.seen.Lock()
	s.seen.requests = append(s.seen.requests, r)
	s.seen.Unlock()
	s.handler.ServeHTTP(w, r)
}

// last is the request seen last.
func (s *server) last(t testing.TB) *http.Request {
	t.Helper()
	s.seen.Lock()
	defer s.seen.Unlock()
	if len(s.seen.requests) == 0 {
		t.Fatal("the upstream saw no request")
	}
	return s.seen.requests[len(s.seen.requests)-1]
}

func (s *server) count() int {
	s.seen.Lock()
	defer s.seen.Unlock()
	return len(s.seen.requests)
}

// countWrites counts the requests but reads, which probes are, too.
func (s *server) countWrites() (n int) {
	s.seen.Lock()
	defer s.seen.Unlock()
	for _, r := range s.seen.requests {
		if !pool.Safe(r.Method) {
			n++
		}
	}
	return n
}

// config trusts the server and has no credentials.
func (s *server) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *server) client(t testing.TB, change ...func(*Options)) *Client {
	t.Helper()
	opts := Options{Config: s.config()}
	if n := networkOf(t); n != nil {
		opts.dial = n.dial
	}
	for _, f := range change {
		f(&opts)
	}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// certificate issues a client certificate, by itself: the fake upstream takes any.
func certificate(t testing.TB, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// peer is the name in the certificate that came with a request, "" without one.
func peer(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName
}

// request is a client's request as the edge would give it.
func request(method, target string, header ...string) *api.Request {
	r := &api.Request{Method: method, Host: "gateway", RemoteAddr: "192.0.2.7:4711", Proto: "HTTP/1.1"}
	u, err := http.NewRequest(method, "http://gateway"+target, nil)
	if err != nil {
		panic(err)
	}
	r.Path, r.RawPath, r.RawQuery = u.URL.Path, u.URL.EscapedPath(), u.URL.RawQuery
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	r.Upgrade = r.Header.Get("Upgrade")
	return r
}

// withBody gives r a body of known length.
func withBody(r *api.Request, body string) *api.Request {
	r.Body, r.ContentLength = bytes.NewReader([]byte(body)), int64(len(body))
	return r
}

// finish reads a response as the edge would, and returns its body.
func finish(t testing.TB, resp *api.Response) string {
	t.Helper()
	body, err := tryFinish(resp)
	if err != nil {
		t.Fatalf("response body: %v", err)
	}
	return body
}

func tryFinish(resp *api.Response) (string, error) {
	var b bytes.Buffer
	var err error
	switch {
	case resp.BodyTo != nil:
		_, err = resp.BodyTo.WriteTo(&b)
	case resp.Stream != nil:
		w := newRecorder()
		resp.Stream.Start(w)
		<-w.ended
		resp.Stream.Stop()
		b.WriteString(w.String())
		if w.aborted {
			err = errAborted
		}
	case resp.Upgrade != nil:
		err = fmt.Errorf("the response is an upgrade")
	default:
		b.Write(resp.Body)
	}
	if resp.Done != nil {
		resp.Done(int64(b.Len()), err)
	}
	return b.String(), err
}

var errAborted = fmt.Errorf("aborted")

// recorder is a StreamWriter that remembers.
type recorder struct {
	frames  chan string
	ended   chan struct{}
	once    sync.Once
	aborted bool // valid once ended is closed
	fail    error

	mu  sync.Mutex
	all bytes.Buffer
}

func newRecorder() *recorder {
	return &recorder{frames: make(chan string, 1000), ended: make(chan struct{})}
}

func (w *recorder) WriteFrames(frames [][]byte) error {
	if w.fail != nil {
		return w.fail
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range frames {
		w.all.Write(f)
		w.frames <- string(f)
	}
	return nil
}

func (w *recorder) Close() { w.once.Do(func() { close(w.ended) }) }

func (w *recorder) Abort() {
	w.once.Do(func() {
		w.aborted = true
		close(w.ended)
	})
}

func (w *recorder) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// within fails the test if nothing comes in time.
func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen", what)
		panic("unreachable")
	}
}

// testContext ends with the test, or when it takes too long.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
