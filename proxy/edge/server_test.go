package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

func TestOptions(t *testing.T) {
	h := handlerFunc(func(context.Context, *api.Request) *api.Response { return text("") })
	for want, o := range map[string]Options{
		"no handler":                     {},
		"only one is given":              {Handler: h, CertFile: "x"},
		"maximum header bytes":           {Handler: h, MaxHeaderBytes: 100},
		"maximum connections":            {Handler: h, MaxConnections: -1},
		"idle timeout: -1s is negative":  {Handler: h, IdleTimeout: -time.Second},
		"no-such-file":                   {Handler: h, CertFile: "no-such-file", KeyFile: "no-such-file"},
		"write timeout: -1s is negative": {Handler: h, WriteTimeout: -time.Second},
	} {
		if _, err := newServer(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestSidecarAddresses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"0.0.0.0:0":              "only a loopback address",
		":0":                     "only a loopback address",
		"[::]:0":                 "only a loopback address",
		"192.0.2.1:0":            "only a loopback address",
		"example.com:0":          "only a loopback address",
		"127.0.0.1":              "missing port",
		"unix:":                  "needs a path",
		"unix:" + file:           "no socket",
		"unix:" + dir + "/no/so": "listening on unix socket",
		"127.0.0.1:0":            "",
		"127.1.2.3:0":            "",
		"localhost:0":            "",
		"unix:" + dir + "/sock":  "",
		"unix://" + dir + "/so2": "",
	} {
		ln, err := listenSidecar(address, defaultSocketMode)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
		if err == nil {
			_ = ln.Close()
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response { return text(r.RemoteAddr) },
		func(o *Options) { o.Listen, o.SidecarListen = "", "unix:"+path })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := listenSidecar("unix:"+path, 0o600); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	nc, err := net.Dial("unix", ts.sidecar)
	if err != nil {
		t.Fatal(err)
	}
	c := newRawConn(t, nc)
	c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, body := c.response("GET"); body != "@" {
		t.Errorf("got %q", body)
	}
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, o := range []Options{
		{Listen: taken.Addr().String()},
		{Listen: "127.0.0.1:0", SidecarListen: taken.Addr().String()},
	} {
		o.Handler = handlerFunc(nil)
		s, err := newServer(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Start(); err == nil {
			t.Error("no error")
		}
	}
}

// TestTimeouts: who sends nothing, or does not go on, is not waited for. When that is, is for
// TestTimeoutsInTime to say: here the machine may be slower than the times.
func TestTimeouts(t *testing.T) {
	serve := func(f func(o *Options)) *testServer {
		return startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") }, f)
	}
	ts := serve(func(o *Options) { o.ReadHeaderTimeout, o.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
	for _, dial := range []func() *rawConn{ts.dial, ts.dialTLS} {
		c := dial() // never sends
		c.ended()
		c = dial() // sends half a head, unless it is too late already
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHo")
		c.ended()
	}
	impatient := serve(func(o *Options) { o.HandshakeTimeout = 50 * time.Millisecond })
	nc, err := net.Dial("tcp", impatient.secure) // no handshake
	if err != nil {
		t.Fatal(err)
	}
	newRawConn(t, nc).ended()
	if log := ts.log.String() + impatient.log.String(); log != "" {
		t.Errorf("logged: %s", log)
	}
}

// TestTimeoutsInTime: a connection ends when its time is over, neither sooner nor later.
func TestTimeoutsInTime(t *testing.T) {
	const handshake, head, idle = 10 * time.Second, 20 * time.Second, 30 * time.Second
	bubble.Test(t, func(t *testing.T) {
		ts, dial := serveInBubble(t, func(context.Context, *api.Request) *api.Response { return text("x") }, func(o *Options) {
			o.HandshakeTimeout, o.ReadHeaderTimeout, o.IdleTimeout = handshake, head, idle
		})
		lasts := func(what string, want time.Duration, ended func()) {
			t.Helper()
			began := time.Now()
			ended()
			// A deadline is not set anew for each read.
			if took := time.Since(began); took < want-want/4 || took > want {
				t.Errorf("%s ends after %v, want %v", what, took, want)
			}
		}
		for _, proto := range []string{"", "http/1.1"} {
			connect := func() *rawConn { return newRawConn(t, dial(proto)) }
			c := connect()
			lasts("one that never sends", idle, c.ended)
			c = connect()
			c.send("GET / HTTP/1.1\r\nHo")
			lasts("half a head", head, c.ended)
			c = connect()
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			c.response("GET")
			lasts("one that is idle after a request", idle, c.ended)
		}
		lasts("one without a handshake", handshake, newRawConn(t, dial("none")).ended)
		f := newFrameConn(t, dial("h2"))
		f.until(isEnd(f.request("GET", "/", false)))
		lasts("one of HTTP/2", idle, func() {
			f.until(func(frame http2.Frame) bool {
				g, ok := frame.(*http2.GoAwayFrame)
				if ok && g.ErrCode != http2.ErrCodeNo {
					t.Errorf("ended with %v", g.ErrCode)
				}
				return ok
			})
		})
		if log := ts.log.String(); log != "" {
			t.Errorf("logged: %s", log)
		}
	})
}

// serveInBubble starts a server within a bubble, whose connections are in memory. dial makes
// one: with TLS for "h2" and "http/1.1", for "" without, and for "none" to the TLS listener,
// without a handshake.
func serveInBubble(t *testing.T, h handlerFunc, change ...func(*Options)) (ts *testServer, dial func(proto string) net.Conn) {
	t.Helper()
	ts = &testServer{t: t, log: &logBuffer{}, roots: x509.NewCertPool()}
	o := Options{Handler: h, Logger: slog.New(slog.NewTextHandler(ts.log, nil))}
	for _, f := range change {
		f(&o)
	}
	var err error
	if ts.Server, err = newServer(o); err != nil {
		t.Fatal(err)
	}
	ts.roots.AppendCertsFromPEM(ts.CAPEM())
	plain, secure := fasthttputil.NewInmemoryListener(), fasthttputil.NewInmemoryListener()
	if err := errors.Join(ts.Serve(inMemory{plain}, api.ListenerSidecar), ts.Serve(inMemory{secure}, api.ListenerSecure)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // behind those of connections
		if err := ts.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ts, func(proto string) net.Conn {
		t.Helper()
		ln := secure
		if proto == "" {
			ln = plain
		}
		nc, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if proto != "" && proto != "none" {
			secured := tls.Client(nc, &tls.Config{RootCAs: ts.roots, ServerName: "127.0.0.1", NextProtos: []string{proto}, MinVersion: tls.VersionTLS12})
			if err := secured.Handshake(); err != nil {
				t.Fatal(err)
			}
			nc = secured
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
}

// TestDripFeed sends a head byte by byte: the timeout is for all of it.
func TestDripFeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, err := newServer(Options{Handler: handlerFunc(func(context.Context, *api.Request) *api.Response { return text("x") })})
		if err != nil {
			t.Fatal(err)
		}
		ln := fasthttputil.NewInmemoryListener()
		if err := s.Serve(ln, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		nc, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for err == nil {
			_, err = io.WriteString(nc, "G")
			time.Sleep(time.Second) // the bubble's clock
		}
		if took := time.Since(begin); took < defaults.ReadHeaderTimeout || took > defaults.ReadHeaderTimeout+3*time.Second {
			t.Errorf("the connection lived %v", took)
		}
		_ = nc.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestInMemory serves connections that are no sockets.
func TestInMemory(t *testing.T) {
	s, err := newServer(Options{Handler: handlerFunc(func(_ context.Context, r *api.Request) *api.Response {
		if r.Body == nil {
			return text(r.Path)
		}
		b, _ := io.ReadAll(r.Body)
		return text(string(b))
	})})
	if err != nil {
		t.Fatal(err)
	}
	ln := fasthttputil.NewInmemoryListener()
	if err := s.Serve(ln, api.ListenerSidecar); err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Dial()
	if err != nil {
		t.Fatal(err)
	}
	c := newRawConn(t, nc)
	for range 3 {
		c.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, body := c.response("GET"); body != "/a" {
			t.Errorf("got %q", body)
		}
		c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		if _, body := c.response("POST"); body != "abc" {
			t.Errorf("got %q", body)
		}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestConnectionLimit(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(o *Options) { o.MaxConnections = 2 })
	a, b := ts.dial(), ts.dialTLS()
	for _, c := range []*rawConn{a, b} {
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		c.response("GET")
	}
	ts.dial().ended()
	if got := ts.gauge("kubeweir_connections_rejected_total", "sidecar", "limit"); got != 1 {
		t.Errorf("%v rejected", got)
	}
	if !strings.Contains(ts.log.String(), "too many are open") {
		t.Errorf("logged: %s", ts.log)
	}
	_ = a.Close()
	for { // until the server has noticed
		c := ts.dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(c.br, nil); err == nil {
			_ = resp.Body.Close()
			break
		}
	}
}

func TestPlainHTTPOnTLS(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	resp, err := http.Get("http://" + ts.secure)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 400 || string(body) != "Client sent an HTTP request to an HTTPS server.\n" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

// TestDrain ends a server under every kind of connection.
func TestDrain(t *testing.T) {
	streams := make(chan *recordingStream, 10)
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	var open []api.StreamWriter
	drained := make(chan struct{})
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/stream":
			s := newRecordingStream()
			streams <- s
			return s.response()
		case "/slow":
			entered <- struct{}{}
			<-release
		}
		return text("done")
	}, func(o *Options) {
		o.OnDrain = func(context.Context) {
			for _, w := range open {
				w.Close()
			}
			close(drained)
		}
	})
	idle, idleTLS, fresh := ts.dial(), ts.dialTLS(), ts.dial()
	for _, c := range []*rawConn{idle, idleTLS} {
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		c.response("GET")
	}
	slow := ts.dial()
	slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	receive(t, entered, "request")
	h2 := ts.client(true)
	type answer struct {
		resp *http.Response
		err  error
	}
	slow2 := make(chan answer, 1)
	warm, err := h2.Get("https://" + ts.secure)
	if err != nil {
		t.Fatal(err)
	}
	_ = warm.Body.Close()
	go func() {
		resp, err := h2.Get("https://" + ts.secure + "/slow")
		slow2 <- answer{resp, err}
	}()
	receive(t, entered, "request")
	watch := ts.dial()
	watch.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	s1 := receive(t, streams, "stream")
	watch.head("GET")
	watch2, err := h2.Get("https://" + ts.secure + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	s2 := receive(t, streams, "stream")
	open = append(open, receive(t, s1.writer, "writer"), receive(t, s2.writer, "writer"))

	ended := make(chan error, 1)
	go func() { ended <- ts.Shutdown(context.Background()) }()
	receive(t, drained, "OnDrain")
	idle.ended()
	idleTLS.ended()
	fresh.ended()
	if nc, err := net.Dial("tcp", ts.sidecar); err == nil {
		_ = nc.Close()
		t.Error("a connection is accepted while draining")
	}
	watch.expect("0\r\n\r\n")
	watch.ended()
	s1.over(t)
	if b, err := io.ReadAll(watch2.Body); err != nil || len(b) > 0 {
		t.Errorf("HTTP/2 watch: %q %v", b, err)
	}
	_ = watch2.Body.Close()
	s2.over(t)
	close(release)
	if resp, body := slow.response("GET"); body != "done" || !resp.Close {
		t.Errorf("got %q, close %v", body, resp.Close)
	}
	slow.ended()
	a := receive(t, slow2, "HTTP/2 response")
	if a.err != nil {
		t.Fatal(a.err)
	}
	if b, err := io.ReadAll(a.resp.Body); err != nil || string(b) != "done" {
		t.Errorf("HTTP/2: %q %v", b, err)
	}
	_ = a.resp.Body.Close()
	if err := receive(t, ended, "end of Shutdown"); err != nil {
		t.Error(err)
	}
	if err := ts.Serve(fasthttputil.NewInmemoryListener(), api.ListenerSidecar); err == nil {
		t.Error("a server that was shut down serves again")
	}
}

// TestCut ends a server whose requests do not end by themselves.
func TestCut(t *testing.T) {
	streams := make(chan *recordingStream, 10)
	entered := make(chan struct{}, 10)
	ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
		if r.Path == "/stream" {
			s := newRecordingStream()
			streams <- s
			return s.response()
		}
		entered <- struct{}{}
		<-ctx.Done()
		return text("late")
	})
	var all []*recordingStream
	for _, path := range []string{"/stream", "/slow"} {
		for _, c := range []*rawConn{ts.dial(), ts.dialTLS()} {
			c.send("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
			if path == "/stream" {
				all = append(all, receive(t, streams, "stream"))
			} else {
				receive(t, entered, "request")
			}
		}
	}
	resp, err := ts.client(true).Get("https://" + ts.secure + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all = append(all, receive(t, streams, "stream"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ts.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, s := range all {
		s.over(t)
	}
	if !strings.Contains(ts.log.String(), "connections cut") || strings.Contains(ts.log.String(), "still running") {
		t.Errorf("logged: %s", ts.log)
	}
}

// TestContext ends the context of a request when its client leaves.
func TestContext(t *testing.T) {
	entered, left := make(chan struct{}, 1), make(chan error, 1)
	ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
		if r.Path == "/wait" {
			if r.Body != nil {
				_, _ = io.ReadAll(r.Body)
			}
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			entered <- struct{}{}
			<-child.Done()
			left <- child.Err()
		}
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		if child.Err() != nil || ctx.Value("key") != nil {
			return &api.Response{Status: 500}
		}
		return text(r.Path)
	})
	over(t, ts, func(t *testing.T, c *http.Client, url string) {
		for _, method := range []string{"GET", "POST"} {
			var body io.Reader
			if method == "POST" {
				body = strings.NewReader(strings.Repeat("x", 10000))
			}
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, method, url+"/wait", body)
			go func() {
				if resp, err := c.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			receive(t, entered, "request")
			cancel()
			if err := receive(t, left, "end of the context"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
	// A pipelined request is not a client's leaving, and is not lost.
	for _, c := range []*rawConn{ts.dial(), ts.dialTLS()} {
		c.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHo")
		if _, body := c.response("GET"); body != "/1" {
			t.Errorf("got %q", body)
		}
		c.send("st: x\r\n\r\n")
		if _, body := c.response("GET"); body != "/2" {
			t.Errorf("got %q", body)
		}
	}
}

func TestConnectionClose(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 429, Header: api.Header{{Name: "Connection", Value: "close"}}, Body: []byte("go")}
	})
	c := ts.dial()
	c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, _ := c.response("GET"); !resp.Close {
		t.Error("the connection is kept")
	}
	c.ended()
	resp, err := ts.client(true).Get("https://" + ts.secure) // a GOAWAY follows
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "go" || resp.StatusCode != 429 || resp.Header.Get("Connection") != "" {
		t.Errorf("got %d %q %v", resp.StatusCode, b, resp.Header)
	}
	_ = resp.Body.Close()
}

func TestTLSVersions(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		nc, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS10, MaxVersion: version})
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = nc.Close()
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // the client may know first
		if got := ts.gauge("kubeweir_connections_rejected_total", "secure", "handshake"); got == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%v handshakes failed", got)
		}
	}
}
