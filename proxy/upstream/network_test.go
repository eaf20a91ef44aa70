package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// networks has the network of each test that runs in a bubble.
var networks sync.Map

// inBubble has a test run with a clock of its own, and its servers and clients meet in memory:
// no machine is so busy that who answers would seem silent.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		networks.Store(t, &network{listeners: make(map[string]*memoryListener)})
		t.Cleanup(func() { networks.Delete(t) })
		test(t)
	})
}

// networkOf is where servers and clients of a test meet, nil for the machine's.
func networkOf(t testing.TB) *network {
	if n, ok := networks.Load(t); ok {
		return n.(*network)
	}
	return nil
}

// meet has a server listen where the test's clients look for it.
func meet(t testing.TB, s *httptest.Server) {
	if networkOf(t) != nil {
		_ = s.Listener.Close()
		s.Listener = listen(t, "")
	}
}

// listen listens at an address, or at any for "".
func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	if n := networkOf(t); n != nil {
		return n.listen(addr)
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dial connects to where a test listens.
func dial(t testing.TB, addr string) (net.Conn, error) {
	if n := networkOf(t); n != nil {
		return n.dial(context.Background(), "tcp", addr)
	}
	return net.Dial("tcp", addr)
}

// network connects in memory.
type network struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	ports     int
}

func (n *network) port() *net.TCPAddr {
	n.ports++
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10_000 + n.ports}
}

func (n *network) listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.port()
	if addr != "" {
		_, port, _ := net.SplitHostPort(addr)
		at.Port, _ = strconv.Atoi(port)
	}
	l := &memoryListener{network: n, addr: at, conns: make(chan net.Conn, 1000), closed: make(chan struct{})}
	n.listeners[at.String()] = l
	return l
}

// dial is like net.Dialer.DialContext.
func (n *network) dial(ctx context.Context, protocol, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[addr]
	if l == nil || ctx.Err() != nil {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	there, back := newHalf(), newHalf()
	near := &memoryConn{in: back, out: there, local: n.port(), remote: l.addr}
	l.conns <- &memoryConn{in: there, out: back, local: l.addr, remote: near.local}
	return near, nil
}

type memoryListener struct {
	network *network
	addr    net.Addr
	conns   chan net.Conn
	closed  chan struct{}
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case conn := <-l.conns:
		return conn, nil
	}
}

func (l *memoryListener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.addr.String()] != l {
		return net.ErrClosed
	}
	delete(l.network.listeners, l.addr.String())
	close(l.closed)
	for {
		select {
		case conn := <-l.conns: // nobody will
			_ = conn.Close()
		default:
			return nil
		}
	}
}

// half is one direction of a connection. It keeps unread data, as a socket does.
type half struct {
	mu       sync.Mutex
	buf      bytes.Buffer
	ended    bool // by who writes
	closed   bool // by who reads
	deadline time.Time
	changed  chan struct{} // closed, and made anew, at each change
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

// change changes h and has who reads look again.
func (h *half) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		changed, deadline := h.changed, h.deadline
		switch {
		case h.closed:
			h.mu.Unlock()
			return 0, net.ErrClosed
		case h.buf.Len() > 0:
			n, err := h.buf.Read(p)
			h.mu.Unlock()
			return n, err
		case h.ended:
			h.mu.Unlock()
			return 0, io.EOF
		}
		h.mu.Unlock()
		var late <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

// memoryConn is one end of a connection. Writes never wait.
type memoryConn struct {
	in, out       *half
	local, remote net.Addr
}

func (c *memoryConn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *memoryConn) Write(p []byte) (n int, err error) {
	c.out.change(func() {
		if c.out.ended || c.out.closed {
			err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
			return
		}
		n, err = c.out.buf.Write(p)
	})
	return n, err
}

func (c *memoryConn) Close() error {
	c.in.change(func() { c.in.closed = true })
	c.out.change(func() { c.out.ended = true })
	return nil
}

// CloseWrite ends one direction.
func (c *memoryConn) CloseWrite() error {
	c.out.change(func() { c.out.ended = true })
	return nil
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

func (c *memoryConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }
