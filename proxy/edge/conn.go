package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

// How a connection stands with a drain: only an idle one may be closed from
// outside.
//
//	idle <---> busy      (its own goroutine)
//	 |
//	 v
//	closed               (closeIfIdle)
const (
	connBusy uint32 = iota
	connIdle
	connClosed
)

// Protocols of a connection, the values of a metric's label.
const (
	protoHandshake = "handshake"
	protoHTTP1     = "http/1.1"
	protoHTTP2     = "h2"
)

// conn is one accepted connection. One goroutine at a time owns it; it passes
// from the handshake to the HTTP/1.1 loop and from there to a stream and back.
// The owner calls end as its last act.
type conn struct {
	*Shared
	listener api.Listener
	// raw is the accepted connection, nc what HTTP is spoken over: raw, or TLS on it.
	raw, nc net.Conn
	records *records // between the two, nil without TLS
	remote  string
	certs   []*x509.Certificate
	sni     string // the host that the TLS client asked for
	proto   string
	state   atomic.Uint32
	// drain is called when the server begins to drain; nil for who need not know.
	drain atomic.Pointer[func()]
	// account is whose the connection is, nil before that is known: see holder.
	account atomic.Pointer[account]
	in      input
	out     output
}

func newConn(s *Shared, nc net.Conn, listener api.Listener) *conn {
	c := &conn{Shared: s, listener: listener, raw: nc, nc: nc, remote: "@", proto: protoHandshake}
	if addr := nc.RemoteAddr(); addr != nil && addr.Network() != "unix" {
		c.remote = addr.String()
	}
	c.gauge(protoHandshake, 1)
	return c
}

// run is the connection's first goroutine. It ends with the handshake, whose
// stack is much deeper than what follows needs.
func (c *conn) run() {
	defer c.contain()
	if c.listener != api.ListenerSecure {
		c.become(protoHTTP1)
		c.panics.Go(nil, "connection", c.serveFirst)
		return
	}
	c.records = &records{Conn: c.raw, timeout: c.o.WriteTimeout}
	tc := tls.Server(c.records, c.tls)
	if err := c.handshake(tc); err != nil {
		c.metrics.rejected.WithLabelValues(listenerName(c.listener), "handshake").Inc()
		c.end()
		return
	}
	c.nc = tc
	state := tc.ConnectionState()
	c.certs, c.sni = state.PeerCertificates, state.ServerName
	if state.NegotiatedProtocol == "h2" {
		c.become(protoHTTP2)
		c.panics.Go(nil, "connection", func() { c.o.HTTP2(c) })
		return
	}
	c.become(protoHTTP1)
	c.panics.Go(nil, "connection", c.serveFirst)
}

// serveFirst waits for the first request, and serves it and what follows. Without TLS a
// client may speak HTTP/2 by prior knowledge.
func (c *conn) serveFirst() {
	defer c.contain()
	switch {
	case !c.awaitRequest():
		c.end()
	case c.records == nil && c.in.hasPreface():
		c.become(protoHTTP2)
		c.o.HTTP2(c)
	default:
		c.o.HTTP1(c)
	}
}

// awaitRequest waits for the first byte of a request. A drain may close the
// connection only here.
func (c *conn) awaitRequest() bool {
	c.state.Store(connIdle)
	if c.draining.Load() {
		return false
	}
	return c.in.wait() && c.state.CompareAndSwap(connIdle, connBusy)
}

func (c *conn) handshake(tc *tls.Conn) error {
	ctx, cancel := context.WithTimeout(c.base, c.o.HandshakeTimeout)
	defer cancel()
	err := tc.HandshakeContext(ctx)
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
		// What net/http says to a client that forgot the s of https.
		_ = record.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	return err
}

func looksLikeHTTP(head [5]byte) bool {
	switch string(head[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

// become settles the protocol.
func (c *conn) become(proto string) {
	c.gauge(c.proto, -1)
	c.proto = proto
	c.gauge(proto, 1)
	if c.in.c == nil {
		c.in.init(c)
		c.out.init(c)
	}
}

func (c *conn) gauge(proto string, d float64) {
	c.metrics.connections.WithLabelValues(listenerName(c.listener), proto).Add(d)
}

// end closes the connection and forgets it.
func (c *conn) end() {
	_ = c.nc.Close()
	c.in.release()
	c.buffers.accounts.release(c.account.Swap(nil))
	c.gauge(c.proto, -1)
	c.ended(c)
}

// getBuffer gets one for the connection's user, see buffers.get.
func (c *conn) getBuffer(size int) *buffer { return c.buffers.get(c.holder(), size) }

// getLarge gets one for the connection's user, see buffers.getLarge.
func (c *conn) getLarge(size int) *buffer { return c.buffers.getLarge(c.holder(), size) }

// short reports that the connection's user holds more than a share of the budget. A watch
// whose client does not read at such a time is ended, the others write without a buffer
// where they may have to wait.
func (c *conn) short() bool { return c.buffers.over(c.holder(), 0) }

// abort closes the socket under whoever is using the connection.
func (c *conn) abort() { _ = c.raw.Close() }

// closeIfIdle closes a connection that waits for a request.
func (c *conn) closeIfIdle() {
	if c.state.CompareAndSwap(connIdle, connClosed) {
		_ = c.nc.Close() // over TLS with a goodbye, which an idle client has room for
	}
}

// onDrain has f called when the server begins to drain, at once if it has.
func (c *conn) onDrain(f func()) {
	c.drain.Store(&f)
	if c.draining.Load() {
		f()
	}
}

// contain ends the connection when its goroutine panics in the transport itself.
func (c *conn) contain() {
	if e := recover(); e != nil {
		c.panics.Recovered("connection", e)
		c.end()
	}
}

// lingerTimeout and lingerBytes bound how long and how much is read from a client
// that is still sending when its answer is complete.
const (
	lingerTimeout = 500 * time.Millisecond
	lingerBytes   = 1 << 20
)

// linger closes the sending side and reads on until the client has closed its own, or
// for a while: closing a socket with unread data, or one that data still comes to,
// resets it, and the client might lose the answer.
func (c *conn) linger(timeout time.Duration) {
	if cw, ok := c.nc.(interface{ CloseWrite() error }); !ok || cw.CloseWrite() != nil {
		return
	}
	if c.nc != c.raw {
		if cw, ok := c.raw.(interface{ CloseWrite() error }); ok {
			_ = cw.CloseWrite()
		}
	}
	if c.in.resume() != nil || c.in.set(time.Now().Add(timeout)) != nil {
		return
	}
	buf := c.getBuffer(smallBuffer)
	defer c.buffers.put(buf)
	for n := 0; n < lingerBytes; {
		m, err := c.nc.Read(buf.b[:cap(buf.b)])
		if err != nil {
			return
		}
		n += m
	}
}

// reset makes the end of the connection look like the failure that it is.
func (c *conn) reset() {
	if tc, ok := c.raw.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
}
