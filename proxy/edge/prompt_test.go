package edge

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestPromptRow(t *testing.T) {
	var p prompt
	again := func(n int, d time.Duration, alone bool) {
		for range n {
			p.waited(d, alone)
		}
	}
	for _, step := range []struct {
		name  string
		n     int
		d     time.Duration
		alone bool
		row   int
	}{
		{"too few", promptRow - 1, promptly, true, promptRow - 1},
		{"another asked", 1, promptly, false, 0},
		{"enough", promptRow + 5, 0, true, promptRow},
		{"a late one", 1, promptly + 1, true, 0},
	} {
		if again(step.n, step.d, step.alone); p.row != step.row {
			t.Errorf("%s: %d in a row, want %d", step.name, p.row, step.row)
		}
	}
}

func TestAlone(t *testing.T) {
	s, a, b := &Server{}, &conn{}, &conn{}
	for i, step := range []struct {
		c    *conn
		want bool
	}{{a, false}, {a, true}, {b, false}, {a, false}, {nil, false}, {nil, true}, {a, false}, {a, true}} {
		if got := s.alone(step.c); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	s.remove(b)
	if s.remove(a); s.latest.Load() != nil {
		t.Error("a closed connection is remembered")
	}
}

// TestPromptAwait: waiting ends when there is something to read and leaves it to be read, and ends in vain.
func TestPromptAwait(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no such system call")
	}
	client, server := connect(t)
	p := prompt{row: promptRow}
	p.init(server)
	p.await()
	if p.row != 0 {
		t.Errorf("after waiting in vain %d requests in a row", p.row)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	if n, err := server.Read(buf); n != 1 || err != nil { // so that the byte is there
		t.Fatal(n, err)
	}
	go func() { _, _ = client.Write([]byte("yz")) }()
	for p.row = promptRow; ; p.row = promptRow {
		if p.await(); p.row == promptRow {
			break
		}
	}
	if n, err := server.Read(buf); n != 2 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = server.Close()
	p.row = promptRow
	if p.await(); p.row != 0 {
		t.Error("waits for a closed connection")
	}
}

// connect makes the two ends of a TCP connection.
func connect(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err = net.Dial("tcp", ln.Addr().String())
	server, acceptErr := ln.Accept()
	if err = errors.Join(err, acceptErr, ln.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

// TestThreadWait: requests one after the other are answered, over both listeners, and a connection that waits for one
// more does not hold up the end of the server.
func TestThreadWait(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, Body: []byte(r.Path)}
	}, func(o *Options) { o.ThreadWait = true })
	for _, c := range []*rawConn{ts.dial(), ts.dialTLS()} {
		for range 5 * promptRow {
			c.send("GET /one HTTP/1.1\r\nHost: x\r\n\r\n")
			if resp, body := c.response("GET"); resp.StatusCode != 200 || body != "/one" {
				t.Fatalf("%s %q", resp.Status, body)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := ts.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
