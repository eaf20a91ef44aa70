package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// narrow is a listener whose connections take little that is not read.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	nc, err := n.Listener.Accept()
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetWriteBuffer(4 << 10)
	}
	return nc, err
}

// narrowSocket has a socket take little that is not read, from its first window on.
func narrowSocket(_, _ string, raw syscall.RawConn) error {
	var err error
	failed := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) //nolint:gosec // a descriptor
	})
	return errors.Join(failed, err)
}

// serveNarrow returns what dials such a connection.
func (ts *testServer) serveNarrow() (dial func() *frameConn) {
	ts.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		ts.t.Fatal(err)
	}
	if err := ts.Serve(narrow{ln}, api.ListenerSidecar); err != nil {
		ts.t.Fatal(err)
	}
	return func() *frameConn {
		ts.t.Helper()
		conn, err := (&net.Dialer{Control: narrowSocket}).Dial("tcp", ln.Addr().String())
		if err != nil {
			ts.t.Fatal(err)
		}
		ts.t.Cleanup(func() { _ = conn.Close() })
		return newFrameConn(ts.t, conn)
	}
}

// TestHTTP2StrangersHoard: where much is held for clients that do not read, and of whom
// nobody knows whose they are, one more does not stay. A user's does, and no more is kept for it
// than is for data.
func TestHTTP2StrangersHoard(t *testing.T) {
	const pings = effortCredit - 100
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo("user")
		return text("x")
	})
	dial := ts.serveNarrow()
	const before = largeAllowed + 1
	ts.buffers.hold(&ts.buffers.accounts.nobody, before)
	defer ts.buffers.hold(&ts.buffers.accounts.nobody, -before)
	flood := func(c *frameConn) {
		c.flood(pings, func(i int) error {
			var data [8]byte
			binary.BigEndian.PutUint64(data[:], uint64(i)+1)
			return c.WritePing(false, data)
		})
	}

	user := dial()
	user.until(isEnd(user.request("GET", "/", false)))
	go flood(user)
	ts.holds(before+2*smallBuffer, before+8*smallBuffer)
	if runtime.GOOS == "linux" { // elsewhere nobody knows who reads
		stranger := dial()
		_ = stranger.WritePing(false, [8]byte{})
		stranger.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // or it may not be counted yet
		go flood(stranger)
		for end := time.Now().Add(patience); ts.gauge("kubeweir_connections", "sidecar", "h2") != 1; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the stranger is still there")
			}
		}
	}
	user.until(func(frame http2.Frame) bool {
		ping, ok := frame.(*http2.PingFrame)
		return ok && binary.BigEndian.Uint64(ping.Data[:]) == pings
	})
}
