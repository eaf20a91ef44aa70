package pool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// scriptedServer answers each request with the next of answers, as it is, and closes the connection
// after one that ends with closeMark. It counts connections.
type scriptedServer struct {
	net.Listener
	mu          sync.Mutex
	answers     []string
	connections int
	running     sync.WaitGroup
}

const closeMark = "\x00close"

func newScriptedServer(t *testing.T, answers ...string) *scriptedServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedServer{Listener: l, answers: answers}
	s.running.Go(s.run)
	t.Cleanup(func() {
		_ = l.Close()
		s.running.Wait()
	})
	return s
}

func (s *scriptedServer) run() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.connections++
		s.mu.Unlock()
		s.running.Go(func() { s.serve(c) })
	}
}

func (s *scriptedServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		s.mu.Lock()
		answer := s.answers[0]
		s.answers = s.answers[1:]
		s.mu.Unlock()
		answer, last := strings.CutSuffix(answer, closeMark)
		if _, err := io.WriteString(c, answer); err != nil || last {
			return
		}
	}
}

func (s *scriptedServer) pool(t *testing.T) *http1Pool {
	d := newHTTP1Pool(&url.URL{Scheme: "http", Host: s.Addr().String()}, (&net.Dialer{}).DialContext, nil, time.Second)
	t.Cleanup(d.CloseIdleConnections)
	return d
}

// send makes a request and reads its whole answer.
func send(ctx context.Context, d *http1Pool, method string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://upstream/x", nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := d.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func length(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestHTTP1Connections: a connection is used again exactly when its response ended where it should.
func TestHTTP1Connections(t *testing.T) {
	for name, tt := range map[string]struct {
		first, body string
		fails       bool
		status      int
		connections int // after a second request
	}{
		"length":         {first: length("hello"), body: "hello", connections: 1},
		"empty":          {first: length(""), connections: 1},
		"chunked":        {first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", body: "abcde", connections: 1},
		"trailers":       {first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n", body: "abc", connections: 1},
		"no content":     {first: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, connections: 1},
		"not modified":   {first: "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", status: 304, connections: 1},
		"early hints":    {first: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + length("hello"), body: "hello", connections: 1},
		"close":          {first: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", body: "hi", connections: 2},
		"to the end":     {first: "HTTP/1.1 200 OK\r\n\r\nhi" + closeMark, body: "hi", connections: 2},
		"HTTP/1.0":       {first: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", body: "hi", connections: 2},
		"more than said": {first: length("hello") + "HTTP/1.1 200 OK\r\n", body: "hello", connections: 2},
		"breaks off":     {first: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi" + closeMark, fails: true, connections: 2},
		"chunks break":   {first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" + closeMark, fails: true, connections: 2},
		"no answer":      {first: closeMark, fails: true, connections: 2},
		"no HTTP":        {first: "SSH-2.0\r\n\r\n", fails: true, connections: 2},
		"switches":       {first: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", fails: true, connections: 2},
		"endless head":   {first: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxResponseHead) + "\r\n\r\n", fails: true, connections: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScriptedServer(t, tt.first, length("again"))
			d := s.pool(t)
			status, body, err := send(t.Context(), d, "GET")
			if tt.status == 0 {
				tt.status = 200
			}
			if (err != nil) != tt.fails || err == nil && (status != tt.status || body != tt.body) {
				t.Errorf("%d %q, %v", status, body, err)
			}
			if name == "more than said" {
				awaitNoise(t, d)
			}
			if _, body, err := send(t.Context(), d, "GET"); err != nil || body != "again" {
				t.Errorf("second request: %q, %v", body, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.connections != tt.connections {
				t.Errorf("%d connections, want %d", s.connections, tt.connections)
			}
		})
	}
}

// awaitNoise returns when no idle connection is quiet any more: what the server did last has
// arrived.
func awaitNoise(t *testing.T, d *http1Pool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		d.mu.Lock()
		quiet := len(d.mu.idle) > 0 && d.mu.idle[0].isQuiet()
		d.mu.Unlock()
		if !quiet {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the connection stays quiet")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestHTTP1NoticesClosedConnections: a write does not meet a connection that the server closed
// while it was idle.
func TestHTTP1NoticesClosedConnections(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	trust := s.Client().Transport.(*http.Transport).TLSClientConfig
	d := newHTTP1Pool(base, (&net.Dialer{}).DialContext, trust, 10*time.Second)
	t.Cleanup(d.CloseIdleConnections)
	for range 20 {
		if status, body, err := send(t.Context(), d, "POST"); status != 200 || body != "ok" {
			t.Fatalf("%d %s %v", status, body, err)
		}
		d.mu.Lock()
		idle := len(d.mu.idle)
		d.mu.Unlock()
		if idle != 1 {
			t.Fatalf("%d idle connections", idle)
		}
		s.CloseClientConnections()
		awaitNoise(t, d)
	}
}

// TestHTTP1RepeatsReads: a read outlives the connection that it went to, a write does not.
func TestHTTP1RepeatsReads(t *testing.T) {
	for method, repeated := range map[string]bool{"GET": true, "DELETE": false, "POST": false} {
		s := newScriptedServer(t, length("first"), closeMark, length("again"))
		d := s.pool(t)
		if _, _, err := send(t.Context(), d, "GET"); err != nil {
			t.Fatal(err)
		}
		_, body, err := send(t.Context(), d, method)
		if (err == nil) != repeated || repeated && body != "again" {
			t.Errorf("%s: %q, %v", method, body, err)
		}
	}
	s := newScriptedServer(t, closeMark, length("again"))
	if _, body, err := send(t.Context(), s.pool(t), "GET"); err == nil {
		t.Errorf("repeated on a new connection: %q", body)
	}
}

// TestHTTP1GivesUp: the end of the context ends whatever is waited for, and the connection with it.
func TestHTTP1GivesUp(t *testing.T) {
	for name, answer := range map[string]string{"head": "", "body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"} {
		t.Run(name, func(t *testing.T) {
			s := newScriptedServer(t, answer, length("again"))
			d := s.pool(t)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, body, err := send(ctx, d, "GET"); err == nil {
				t.Errorf("read %q", body)
			}
			if _, body, err := send(t.Context(), d, "GET"); err != nil || body != "again" {
				t.Errorf("%q, %v", body, err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
			if _, _, err := send(ctx, d, "GET"); err == nil {
				t.Error("sent with a context that has ended")
			}
		})
	}
	t.Run("unread", func(t *testing.T) {
		s := newScriptedServer(t, length("hello"), length("again"))
		d := s.pool(t)
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://upstream/x", nil)
		resp, err := d.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 9)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read after Close: %v", err)
		}
		if _, body, err := send(t.Context(), d, "GET"); err != nil || body != "again" {
			t.Errorf("%q, %v", body, err)
		}
	})
}

func TestHTTP1Accepts(t *testing.T) {
	d := &http1Pool{}
	body := func(r io.Reader, header string) *http.Request {
		req, _ := http.NewRequest("POST", "http://x/", r)
		if header != "" {
			req.Header.Set(header, "x")
		}
		return req
	}
	for name, tt := range map[string]struct {
		req  *http.Request
		want bool
	}{
		"none":      {body(nil, ""), true},
		"in memory": {body(strings.NewReader("x"), ""), true},
		"stream":    {body(io.MultiReader(strings.NewReader("x")), ""), false},
		"upgrade":   {body(nil, "Upgrade"), false},
	} {
		if got := d.accepts(tt.req); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHTTP1Trace: what decides whether a request may be sent again is told.
func TestHTTP1Trace(t *testing.T) {
	s := newScriptedServer(t, length("a"), length("b"))
	d := s.pool(t)
	var told []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn:      func(i httptrace.GotConnInfo) { told = append(told, fmt.Sprint("conn ", i.Reused)) },
		WroteHeaders: func() { told = append(told, "headers") },
	})
	for range 2 {
		if _, _, err := send(ctx, d, "GET"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(told, ", "), "conn false, headers, conn true, headers"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// fakeConn is a connection that only notices being closed.
type fakeConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *fakeConn) Close() error { c.closed.Store(true); return nil }

// TestHTTP1Idle: idle connections are closed in time, and all of them when they are no longer
// wanted.
func TestHTTP1Idle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &http1Pool{}
		give := func() *fakeConn {
			nc := &fakeConn{}
			c := &http1Conn{Conn: nc, br: bufio.NewReader(strings.NewReader("")), unlink: func() bool { return true }, probe: func() bool { return !nc.closed.Load() }}
			d.put(c, &http.Response{Request: &http.Request{}})
			return nc
		}
		first := give()
		time.Sleep(20 * time.Second)
		second := give()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !first.closed.Load() || second.closed.Load() {
			t.Errorf("after 31 and 11 s: %v, %v", first.closed.Load(), second.closed.Load())
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !second.closed.Load() || len(d.mu.idle) > 0 || d.mu.reaper != nil {
			t.Error("not closed after 31 s")
		}
		for i := range MaxHTTP1 + 1 {
			if c := give(); c.closed.Load() != (i == MaxHTTP1) {
				t.Errorf("connection %d: closed %v", i, c.closed.Load())
			}
		}
		d.CloseIdleConnections()
		if c := give(); len(d.mu.idle) > 0 || !c.closed.Load() || d.mu.reaper != nil {
			t.Error("open after the end")
		}
	})
}
