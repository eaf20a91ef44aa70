package edge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

func TestOptions(t *testing.T) {
	if _, err := edgetest.NewServer(edge.Options{}); err == nil || !strings.Contains(err.Error(), "no handler") {
		t.Errorf("got %v", err)
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
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response { return edgetest.Text(r.RemoteAddr) },
		func(o *edge.Options) { o.Listen, o.SidecarListen = "", "unix:"+path })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := edge.ListenSidecar("unix:" + path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	nc, err := net.Dial("unix", ts.Sidecar)
	if err != nil {
		t.Fatal(err)
	}
	c := edgetest.NewRawConn(t, nc)
	c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, body := c.Response("GET"); body != "@" {
		t.Errorf("got %q", body)
	}
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, o := range []edge.Options{
		{Listen: taken.Addr().String()},
		{Listen: "127.0.0.1:0", SidecarListen: taken.Addr().String()},
	} {
		o.Handler = edgetest.HandlerFunc(nil)
		s, err := edgetest.NewServer(o)
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
	serve := func(f func(o *edge.Options)) *edgetest.Server {
		return edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") }, f)
	}
	ts := serve(func(o *edge.Options) { o.ReadHeaderTimeout, o.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond })
	for _, dial := range []func() *edgetest.RawConn{ts.Dial, ts.DialTLS} {
		c := dial() // never sends
		c.Ended()
		c = dial() // sends half a head, unless it is too late already
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHo")
		c.Ended()
	}
	impatient := serve(func(o *edge.Options) { o.HandshakeTimeout = 50 * time.Millisecond })
	nc, err := net.Dial("tcp", impatient.Secure) // no handshake
	if err != nil {
		t.Fatal(err)
	}
	edgetest.NewRawConn(t, nc).Ended()
	if log := ts.Log.String() + impatient.Log.String(); log != "" {
		t.Errorf("logged: %s", log)
	}
}

// TestTimeoutsInTime: a connection ends when its time is over, neither sooner nor later.
func TestTimeoutsInTime(t *testing.T) {
	const handshake, head, idle = 10 * time.Second, 20 * time.Second, 30 * time.Second
	bubble.Test(t, func(t *testing.T) {
		ts, dial := edgetest.ServeInBubble(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") }, func(o *edge.Options) {
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
			connect := func() *edgetest.RawConn { return edgetest.NewRawConn(t, dial(proto)) }
			c := connect()
			lasts("one that never sends", idle, c.Ended)
			c = connect()
			c.Send("GET / HTTP/1.1\r\nHo")
			lasts("half a head", head, c.Ended)
			c = connect()
			c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			c.Response("GET")
			lasts("one that is idle after a request", idle, c.Ended)
		}
		lasts("one without a handshake", handshake, edgetest.NewRawConn(t, dial("none")).Ended)
		f := edgetest.NewFrameConn(t, dial("h2"))
		f.Until(edgetest.IsEnd(f.Request("GET", "/", false)))
		lasts("one of HTTP/2", idle, func() {
			f.Until(func(frame http2.Frame) bool {
				g, ok := frame.(*http2.GoAwayFrame)
				if ok && g.ErrCode != http2.ErrCodeNo {
					t.Errorf("ended with %v", g.ErrCode)
				}
				return ok
			})
		})
		if log := ts.Log.String(); log != "" {
			t.Errorf("logged: %s", log)
		}
	})
}

// TestDripFeed sends a head byte by byte: the timeout is for all of it.
func TestDripFeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, err := edgetest.NewServer(edge.Options{Handler: edgetest.HandlerFunc(func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") })})
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
	s, err := edgetest.NewServer(edge.Options{Handler: edgetest.HandlerFunc(func(_ context.Context, r *api.Request) *api.Response {
		if r.Body == nil {
			return edgetest.Text(r.Path)
		}
		b, _ := io.ReadAll(r.Body)
		return edgetest.Text(string(b))
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
	c := edgetest.NewRawConn(t, nc)
	for range 3 {
		c.Send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, body := c.Response("GET"); body != "/a" {
			t.Errorf("got %q", body)
		}
		c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		if _, body := c.Response("POST"); body != "abc" {
			t.Errorf("got %q", body)
		}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestConnectionLimit(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") },
		func(o *edge.Options) { o.MaxConnections = 2 })
	a, b := ts.Dial(), ts.DialTLS()
	for _, c := range []*edgetest.RawConn{a, b} {
		c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		c.Response("GET")
	}
	ts.Dial().Ended()
	if got := ts.Gauge("kubeweir_connections_rejected_total", "sidecar", "limit"); got != 1 {
		t.Errorf("%v rejected", got)
	}
	if !strings.Contains(ts.Log.String(), "too many are open") {
		t.Errorf("logged: %s", ts.Log)
	}
	_ = a.Close()
	for { // until the server has noticed
		c := ts.Dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(c.Br, nil); err == nil {
			_ = resp.Body.Close()
			break
		}
	}
}

func TestPlainHTTPOnTLS(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") })
	resp, err := http.Get("http://" + ts.Secure)
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
	streams := make(chan *edgetest.RecordingStream, 10)
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	var open []api.StreamWriter
	drained := make(chan struct{})
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/stream":
			s := edgetest.NewRecordingStream()
			streams <- s
			return s.Response()
		case "/slow":
			entered <- struct{}{}
			<-release
		}
		return edgetest.Text("done")
	}, func(o *edge.Options) {
		o.OnDrain = func(context.Context) {
			for _, w := range open {
				w.Close()
			}
			close(drained)
		}
	})
	idle, idleTLS, fresh := ts.Dial(), ts.DialTLS(), ts.Dial()
	for _, c := range []*edgetest.RawConn{idle, idleTLS} {
		c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		c.Response("GET")
	}
	slow := ts.Dial()
	slow.Send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	edgetest.Receive(t, entered, "request")
	h2 := ts.Client(true)
	type response struct {
		resp *http.Response
		err  error
	}
	slow2 := make(chan response, 1)
	warm, err := h2.Get("https://" + ts.Secure)
	if err != nil {
		t.Fatal(err)
	}
	_ = warm.Body.Close()
	go func() {
		resp, err := h2.Get("https://" + ts.Secure + "/slow")
		slow2 <- response{resp, err}
	}()
	edgetest.Receive(t, entered, "request")
	watch := ts.Dial()
	watch.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	s1 := edgetest.Receive(t, streams, "stream")
	watch.Head("GET")
	watch2, err := h2.Get("https://" + ts.Secure + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	s2 := edgetest.Receive(t, streams, "stream")
	open = append(open, edgetest.Receive(t, s1.Writer, "writer"), edgetest.Receive(t, s2.Writer, "writer"))

	ended := make(chan error, 1)
	go func() { ended <- ts.Shutdown(context.Background()) }()
	edgetest.Receive(t, drained, "OnDrain")
	idle.Ended()
	idleTLS.Ended()
	fresh.Ended()
	if nc, err := net.Dial("tcp", ts.Sidecar); err == nil {
		_ = nc.Close()
		t.Error("a connection is accepted while draining")
	}
	watch.Expect("0\r\n\r\n")
	watch.Ended()
	s1.Over(t)
	if b, err := io.ReadAll(watch2.Body); err != nil || len(b) > 0 {
		t.Errorf("HTTP/2 watch: %q %v", b, err)
	}
	_ = watch2.Body.Close()
	s2.Over(t)
	close(release)
	if resp, body := slow.Response("GET"); body != "done" || !resp.Close {
		t.Errorf("got %q, close %v", body, resp.Close)
	}
	slow.Ended()
	a := edgetest.Receive(t, slow2, "HTTP/2 response")
	if a.err != nil {
		t.Fatal(a.err)
	}
	if b, err := io.ReadAll(a.resp.Body); err != nil || string(b) != "done" {
		t.Errorf("HTTP/2: %q %v", b, err)
	}
	_ = a.resp.Body.Close()
	if err := edgetest.Receive(t, ended, "end of Shutdown"); err != nil {
		t.Error(err)
	}
	if err := ts.Serve(fasthttputil.NewInmemoryListener(), api.ListenerSidecar); err == nil {
		t.Error("a server that was shut down serves again")
	}
}

// TestCut ends a server whose requests do not end by themselves.
func TestCut(t *testing.T) {
	streams := make(chan *edgetest.RecordingStream, 10)
	entered := make(chan struct{}, 10)
	ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
		if r.Path == "/stream" {
			s := edgetest.NewRecordingStream()
			streams <- s
			return s.Response()
		}
		entered <- struct{}{}
		<-ctx.Done()
		return edgetest.Text("late")
	})
	var all []*edgetest.RecordingStream
	for _, path := range []string{"/stream", "/slow"} {
		for _, c := range []*edgetest.RawConn{ts.Dial(), ts.DialTLS()} {
			c.Send("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
			if path == "/stream" {
				all = append(all, edgetest.Receive(t, streams, "stream"))
			} else {
				edgetest.Receive(t, entered, "request")
			}
		}
	}
	resp, err := ts.Client(true).Get("https://" + ts.Secure + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all = append(all, edgetest.Receive(t, streams, "stream"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ts.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, s := range all {
		s.Over(t)
	}
	if !strings.Contains(ts.Log.String(), "connections cut") || strings.Contains(ts.Log.String(), "still running") {
		t.Errorf("logged: %s", ts.Log)
	}
}

// TestContext ends the context of a request when its client leaves.
func TestContext(t *testing.T) {
	entered, left := make(chan struct{}, 1), make(chan error, 1)
	ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
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
		return edgetest.Text(r.Path)
	})
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
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
			edgetest.Receive(t, entered, "request")
			cancel()
			if err := edgetest.Receive(t, left, "end of the context"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
	// A pipelined request is not a client's leaving, and is not lost.
	for _, c := range []*edgetest.RawConn{ts.Dial(), ts.DialTLS()} {
		c.Send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHo")
		if _, body := c.Response("GET"); body != "/1" {
			t.Errorf("got %q", body)
		}
		c.Send("st: x\r\n\r\n")
		if _, body := c.Response("GET"); body != "/2" {
			t.Errorf("got %q", body)
		}
	}
}

func TestConnectionClose(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 429, Header: api.Header{{Name: "Connection", Value: "close"}}, Body: []byte("go")}
	})
	c := ts.Dial()
	c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, _ := c.Response("GET"); !resp.Close {
		t.Error("the connection is kept")
	}
	c.Ended()
	resp, err := ts.Client(true).Get("https://" + ts.Secure) // a GOAWAY follows
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "go" || resp.StatusCode != 429 || resp.Header.Get("Connection") != "" {
		t.Errorf("got %d %q %v", resp.StatusCode, b, resp.Header)
	}
	_ = resp.Body.Close()
}

func TestTLSVersions(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") })
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		nc, err := tls.Dial("tcp", ts.Secure, &tls.Config{RootCAs: ts.Roots, MinVersion: tls.VersionTLS10, MaxVersion: version})
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = nc.Close()
		}
	}
	for end := time.Now().Add(edgetest.Timeout); ; time.Sleep(time.Millisecond) { // the client may know first
		if got := ts.Gauge("kubeweir_connections_rejected_total", "secure", "handshake"); got == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%v handshakes failed", got)
		}
	}
}
