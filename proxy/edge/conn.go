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

	"github.com/kubeweir/kubeweir/internal/api"
)

// States of a connection in respect of a drain, which may close only an idle one from outside.
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

// Protocols serve a connection until it ends: h1.Serve and h2.Serve. HTTP1 is called when the
// first byte of the first request is there.
type Protocols struct{ HTTP1, HTTP2 func(*Conn) }

// Conn is one accepted connection. One goroutine at a time owns it. The handshake passes it on to
// one of the Protocols. The last call of the owner must be End.
type Conn struct {
	*Shared
	Holder
	// NetConn is the connection that carries HTTP: TLS over socket, or socket.
	NetConn net.Conn
	In      Input
	Out     Output

	socket socket
	client client
	proto  string
	state  atomic.Uint32
	// drain is called when the server begins to drain; nil for protocols that do not need it.
	drain atomic.Pointer[func()]
	// protocols serve the connection; ended is called after it has ended.
	protocols Protocols
	ended     func(*Conn)
}

// client describes the client of a connection.
type client struct {
	listener api.Listener
	remote   string
	certs    []*x509.Certificate
	sni      string // the host that the TLS client asked for
}

// NewConn prepares a connection that Serve accepted.
func NewConn(s *Shared, nc net.Conn, listener api.Listener) *Conn {
	c := &Conn{Shared: s, Holder: Holder{buffers: &s.Buffers}, client: client{listener: listener, remote: "@"}}
	c.socket.Conn, c.socket.timeout = nc, s.Options.WriteTimeout
	c.NetConn = &c.socket
	if addr := nc.RemoteAddr(); addr != nil && addr.Network() != "unix" {
		c.client.remote = addr.String()
	}
	c.initIO()
	c.become(protoHandshake)
	return c
}

// run is the connection's first goroutine. It ends with the handshake, because that needs a much
// deeper stack than serving does.
func (c *Conn) run() {
	defer c.Contain()
	proto := protoHTTP1
	if c.client.listener == api.ListenerSecure {
		tc := tls.Server(&c.socket, c.tls)
		if err := c.handshake(tc); err != nil {
			c.Metrics.rejected.WithLabelValues(listenerName(c.client.listener), "handshake").Inc()
			c.End()
			return
		}
		c.NetConn = tc
		state := tc.ConnectionState()
		c.client.certs, c.client.sni = state.PeerCertificates, state.ServerName
		if state.NegotiatedProtocol == "h2" {
			proto = protoHTTP2
		}
	}
	c.become(proto)
	c.initIO()
	c.Panics.Go(nil, "connection", c.serve)
}

func (c *Conn) handshake(tc *tls.Conn) error {
	ctx, cancel := context.WithTimeout(c.Base, c.Options.HandshakeTimeout)
	defer cancel()
	err := tc.HandshakeContext(ctx)
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
		// net/http sends this response to a client that used http instead of https.
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

// initIO prepares both sides for a protocol.
func (c *Conn) initIO() {
	secure := c.isSecure()
	c.socket.raw = rawOf(c.socket.Conn)
	c.In.conn, c.In.socket, c.In.secure = c.NetConn, &c.socket, secure
	c.In.readers, c.In.options = &c.readers, &c.Options
	if c.socket.raw != nil {
		c.In.tryFill = c.In.fill
	}
	c.Out.conn, c.Out.socket, c.Out.secure = c.NetConn, &c.socket, secure
	c.Out.holder, c.Out.timeout = &c.Holder, c.Options.WriteTimeout
}

// isSecure reports whether TLS is spoken.
func (c *Conn) isSecure() bool { return c.NetConn != net.Conn(&c.socket) }

// serve speaks the protocol. Without TLS a client may speak HTTP/2 by prior knowledge.
func (c *Conn) serve() {
	defer c.Contain()
	switch {
	case c.proto == protoHTTP2:
		c.protocols.HTTP2(c)
	case !c.AwaitRequest():
		c.End()
	case !c.isSecure() && c.In.hasPreface():
		c.become(protoHTTP2)
		c.protocols.HTTP2(c)
	default:
		c.protocols.HTTP1(c)
	}
}

// AwaitRequest waits for the first byte of a request over HTTP/1.1. A drain may close the
// connection only here.
func (c *Conn) AwaitRequest() bool {
	c.state.Store(connIdle)
	if c.Draining.Load() {
		return false
	}
	return c.In.WaitFor(c.Options.IdleTimeout) && c.state.CompareAndSwap(connIdle, connBusy)
}

// Describe sets the fields of a request that its connection determines.
func (c *Conn) Describe(r *api.Request) {
	r.RemoteAddr, r.PeerCertificates, r.ServerName, r.Listener = c.client.remote, c.client.certs, c.client.sni, c.client.listener
}

// OnDrain has f called when the server begins to drain, at once if it has.
func (c *Conn) OnDrain(f func()) {
	c.drain.Store(&f)
	if c.Draining.Load() {
		f()
	}
}

// startDrain closes a connection that waits for a request over HTTP/1.1, and notifies the protocol
// of other connections.
func (c *Conn) startDrain() {
	if c.state.CompareAndSwap(connIdle, connClosed) {
		_ = c.NetConn.Close() // over TLS with a goodbye, which an idle client has room for
	}
	if f := c.drain.Load(); f != nil {
		(*f)()
	}
}

// become settles the protocol.
func (c *Conn) become(proto string) {
	c.gauge(-1)
	c.proto = proto
	c.gauge(1)
}

func (c *Conn) gauge(d float64) {
	if c.proto != "" {
		c.Metrics.connections.WithLabelValues(listenerName(c.client.listener), c.proto).Add(d)
	}
}

// lingerBytes bounds how much is read from a client that is still sending when its response is
// complete.
const lingerBytes = 1 << 20

// Linger closes the sending side and continues to read until the client has closed its side, or the
// timeout passes. Closing a socket with unread or arriving data would reset it, and the client
// might lose the response.
func (c *Conn) Linger(timeout time.Duration) {
	under, hasSides := c.socket.Conn.(halfCloser)
	if tc, ok := c.NetConn.(*tls.Conn); ok {
		if tc.CloseWrite() != nil {
			return
		}
		if hasSides {
			_ = under.CloseWrite()
		}
	} else if !hasSides || under.CloseWrite() != nil {
		return
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
	if tc, ok := c.socket.Conn.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
}

// Abort closes the socket under whoever is using the connection.
func (c *Conn) Abort() { _ = c.socket.Conn.Close() }

// End closes the connection and forgets it.
func (c *Conn) End() {
	_ = c.NetConn.Close()
	c.In.Release()
	c.ReleaseAccount(c.account.Swap(nil))
	c.gauge(-1)
	c.ended(c)
}

// Contain, deferred, ends the connection when its goroutine panics in the transport itself.
func (c *Conn) Contain() {
	if e := recover(); e != nil {
		c.Panics.Recovered("connection", e)
		c.End()
	}
}
