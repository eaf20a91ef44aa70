//go:build unix

package edgetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// RawConn is a client that writes bytes.
type RawConn struct {
	net.Conn
	t  testing.TB
	Br *bufio.Reader
}

func NewRawConn(t testing.TB, nc net.Conn) *RawConn {
	t.Helper()
	_ = nc.SetDeadline(time.Now().Add(Timeout))
	t.Cleanup(func() { _ = nc.Close() })
	return &RawConn{Conn: nc, t: t, Br: bufio.NewReader(nc)}
}

// Send writes formatted text.
func (c *RawConn) Send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatalf("writing: %v", err)
	}
}

// Expect reads exactly want.
func (c *RawConn) Expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.Br, got)
	if string(got[:n]) != want {
		c.t.Fatalf("read %q (%v), want %q", got[:n], err, want)
	}
}

// Response reads one response with its whole body.
func (c *RawConn) Response(method string) (resp *http.Response, body string) {
	c.t.Helper()
	resp = c.Head(method)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("reading the body: %v", err)
	}
	return resp, string(b)
}

// Head reads the header of a response.
func (c *RawConn) Head(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.Br, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading the response: %v", err)
	}
	return resp
}

// Ended waits for the end of the connection.
func (c *RawConn) Ended() {
	c.t.Helper()
	rest, err := io.ReadAll(c.Br)
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
