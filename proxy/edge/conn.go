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
	ProtoHTTP1     = "http/1.1"
	protoHTTP2     = "h2"
)

// Conn is one accepted connection. One goroutine at a time owns it; it passes
// from the handshake to the HTTP/1.1 loop and from there to a stream and back.
// The owner calls end as its last act.
type Conn struct {
	*Shared
	Listener api.Listener
	// raw is the accepted connection, nc what HTTP is spoken over: raw, or TLS on it.
	raw, NetConn net.Conn
	Records      *Records // between the two, nil without TLS
	Remote       string
	Certs        []*x509.Certificate
	Sni          string // the host that the TLS client asked for
	proto        string
	state        atomic.Uint32
	// drain is called when the server begins to drain; nil for who need not know.
	drain atomic.Pointer[func()]
	// Account is whose the connection is, nil before that is known: see holder.
	Account atomic.Pointer[Account]
	In      Input
	Out     Output
}

func NewConn(s *Shared, nc net.Conn, listener api.Listener) *Conn {
	c := &Conn{Shared: s, Listener: listener, raw: nc, NetConn: nc, Remote: "@", proto: protoHandshake}
	if addr := nc.RemoteAddr(); addr != nil && addr.Network() != "unix" {
		c.Remote = addr.String()
	}
	c.gauge(protoHandshake, 1)
	return c
}

// run is the connection's first goroutine. It ends with the handshake, whose
// stack is much deeper than what follows needs.
func (c *Conn) run() {
	defer c.Contain()
	if c.Listener != api.ListenerSecure {
		c.Become(ProtoHTTP1)
		c.Panics.Go(nil, "connection", c.serveFirst)
		return
	}
	c.Records = &Records{Conn: c.raw, Timeout: c.Options.WriteTimeout}
	tc := tls.Server(c.Records, c.Tls)
	if err := c.handshake(tc); err != nil {
		c.Metrics.rejected.WithLabelValues(listenerName(c.Listener), "handshake").Inc()
		c.End()
		return
	}
	c.NetConn = tc
	state := tc.ConnectionState()
	c.Certs, c.Sni = state.PeerCertificates, state.ServerName
	if state.NegotiatedProtocol == "h2" {
		c.Become(protoHTTP2)
		c.Panics.Go(nil, "connection", func() { c.Options.HTTP2(c) })
		return
	}
	c.Become(ProtoHTTP1)
	c.Panics.Go(nil, "connection", c.serveFirst)
}

// serveFirst waits for the first request, and serves it and what follows. Without TLS a
// client may speak HTTP/2 by prior knowledge.
func (c *Conn) serveFirst() {
	defer c.Contain()
	switch {
	case !c.AwaitRequest():
		c.End()
	case c.Records == nil && c.In.hasPreface():
		c.Become(protoHTTP2)
		c.Options.HTTP2(c)
	default:
		c.Options.HTTP1(c)
	}
}

// AwaitRequest waits for the first byte of a request. A drain may close the
// connection only here.
func (c *Conn) AwaitRequest() bool {
	c.state.Store(connIdle)
	if c.Draining.Load() {
		return false
	}
	return c.In.Wait() && c.state.CompareAndSwap(connIdle, connBusy)
}

func (c *Conn) handshake(tc *tls.Conn) error {
	ctx, cancel := context.WithTimeout(c.Base, c.Options.HandshakeTimeout)
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

// Become settles the protocol.
func (c *Conn) Become(proto string) {
	c.gauge(c.proto, -1)
	c.proto = proto
	c.gauge(proto, 1)
	if c.In.c == nil {
		c.In.init(c)
		c.Out.Init(c)
	}
}

func (c *Conn) gauge(proto string, d float64) {
	c.Metrics.connections.WithLabelValues(listenerName(c.Listener), proto).Add(d)
}

// End closes the connection and forgets it.
func (c *Conn) End() {
	_ = c.NetConn.Close()
	c.In.Release()
	c.Buffers.Accounts.Release(c.Account.Swap(nil))
	c.gauge(c.proto, -1)
	c.ended(c)
}

// Buffer gets one for the connection's user, see buffers.get.
func (c *Conn) Buffer(size int) *Buffer { return c.Buffers.Get(c.Holder(), size) }

// getLarge gets one for the connection's user, see buffers.getLarge.
func (c *Conn) getLarge(size int) *Buffer { return c.Buffers.GetLarge(c.Holder(), size) }

// OverShare reports that the connection's user holds more than a share of the budget. A watch
// whose client does not read at such a time is ended, the others write without a buffer
// where they may have to wait.
func (c *Conn) OverShare() bool { return c.Buffers.OverShare(c.Holder(), 0) }

// Abort closes the socket under whoever is using the connection.
func (c *Conn) Abort() { _ = c.raw.Close() }

// closeIfIdle closes a connection that waits for a request.
func (c *Conn) closeIfIdle() {
	if c.state.CompareAndSwap(connIdle, connClosed) {
		_ = c.NetConn.Close() // over TLS with a goodbye, which an idle client has room for
	}
}

// OnDrain has f called when the server begins to drain, at once if it has.
func (c *Conn) OnDrain(f func()) {
	c.drain.Store(&f)
	if c.Draining.Load() {
		f()
	}
}

// Contain ends the connection when its goroutine panics in the transport itself.
func (c *Conn) Contain() {
	if e := recover(); e != nil {
		c.Panics.Recovered("connection", e)
		c.End()
	}
}

// lingerTimeout and lingerBytes bound how long and how much is read from a client
// that is still sending when its answer is complete.
const (
	lingerTimeout = 500 * time.Millisecond
	lingerBytes   = 1 << 20
)

// Linger closes the sending side and reads on until the client has closed its own, or
// for a while: closing a socket with unread data, or one that data still comes to,
// resets it, and the client might lose the answer.
func (c *Conn) Linger(timeout time.Duration) {
	if cw, ok := c.NetConn.(interface{ CloseWrite() error }); !ok || cw.CloseWrite() != nil {
		return
	}
	if c.NetConn != c.raw {
		if cw, ok := c.raw.(interface{ CloseWrite() error }); ok {
			_ = cw.CloseWrite()
		}
	}
	if c.In.Resume() != nil || c.In.set(time.Now().Add(timeout)) != nil {
		return
	}
	buf := c.Buffer(SmallBuffer)
	defer c.Buffers.Put(buf)
	for n := 0; n < lingerBytes; {
		m, err := c.NetConn.Read(buf.B[:cap(buf.B)])
		if err != nil {
			return
		}
		n += m
	}
}

// Reset makes the end of the connection look like the failure that it is.
func (c *Conn) Reset() {
	if tc, ok := c.raw.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
}
