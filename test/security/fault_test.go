package security

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// faultyUpstream is a proxy between one gateway and kube that injects faults.
type faultyUpstream struct {
	url string

	mu      sync.Mutex
	thaw    chan struct{} // nil unless frozen
	instead func(http.ResponseWriter, *http.Request) bool
	count   int // number of requests
}

// newFaultyUpstream starts a faultyUpstream that forwards everything.
func newFaultyUpstream(t *testing.T) *faultyUpstream {
	t.Helper()
	f := &faultyUpstream{}
	target, err := url.Parse(kube.URL())
	must(t, err)
	transport := &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		instead := f.instead
		f.count++
		f.mu.Unlock()
		if instead == nil || !instead(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	pair, err := kube.IssueServingCert("127.0.0.1")
	must(t, err)
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	must(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.EnableHTTP2 = true
	server.Listener = freezingListener{server.Listener, f}
	server.StartTLS()
	f.url = server.URL
	t.Cleanup(func() {
		f.freeze(false)
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return f
}

// insteadOf sets a function that handles requests; it returns false to forward a request.
func (f *faultyUpstream) insteadOf(response func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead = response
}

// freeze stops or resumes all connections, as SIGSTOP and SIGCONT of a server do.
func (f *faultyUpstream) freeze(frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case frozen && f.thaw == nil:
		f.thaw = make(chan struct{})
	case !frozen && f.thaw != nil:
		close(f.thaw)
		f.thaw = nil
	}
}

func (f *faultyUpstream) wait() {
	f.mu.Lock()
	thaw := f.thaw
	f.mu.Unlock()
	if thaw != nil {
		<-thaw
	}
}

type freezingListener struct {
	net.Listener
	f *faultyUpstream
}

func (l freezingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return freezingConn{conn, l.f}, err
}

type freezingConn struct {
	net.Conn
	f *faultyUpstream
}

func (c freezingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.f.wait()
	return n, err
}

func (c freezingConn) Write(p []byte) (int, error) {
	c.f.wait()
	return c.Conn.Write(p)
}
