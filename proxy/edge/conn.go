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
	srv      *Server
	listener api.Listener
	// raw is the accepted connection, nc what HTTP is spoken over: raw, or TLS on it.
	raw, nc net.Conn
	records *records // between the two, nil without TLS
	remote  string
	certs   []*x509.Certificate
	sni     string // the host that the TLS client asked for
	proto   string
	state   atomic.Uint32
	// spoken is set with the first request over HTTP/1.1: there is no way to HTTP/2
	// from there.
	spoken bool
	h2     atomic.Pointer[http2Conn] // nil for other protocols
	// account is whose the connection is, nil before that is known: see holder.
	account atomic.Pointer[account]
	in      input
	out     output
}

func newConn(s *Server, nc net.Conn, listener api.Listener) *conn {
	c := &conn{srv: s, listener: listener, raw: nc, nc: nc, remote: "@", proto: protoHandshake}
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
		c.srv.panics.Go(nil, "connection", c.serveHTTP1)
		return
	}
	c.records = &records{Conn: c.raw, timeout: c.srv.o.WriteTimeout}
	tc := tls.Server(c.records, c.srv.tls)
	if err := c.handshake(tc); err != nil {
		c.srv.metrics.rejected.WithLabelValues(listenerName(c.listener), "handshake").Inc()
		c.end()
		return
	}
	c.nc = tc
	state := tc.ConnectionState()
	c.certs, c.sni = state.PeerCertificates, state.ServerName
	if state.NegotiatedProtocol == "h2" {
		c.become(protoHTTP2)
		c.srv.panics.Go(nil, "connection", c.serveHTTP2)
		return
	}
	c.become(protoHTTP1)
	c.srv.panics.Go(nil, "connection", c.serveHTTP1)
}

func (c *conn) handshake(tc *tls.Conn) error {
	ctx, cancel := context.WithTimeout(c.srv.base, c.srv.o.HandshakeTimeout)
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
	c.srv.metrics.connections.WithLabelValues(listenerName(c.listener), proto).Add(d)
}

// end closes the connection and forgets it.
func (c *conn) end() {
	_ = c.nc.Close()
	c.in.release()
	c.srv.buffers.accounts.release(c.account.Swap(nil))
	c.gauge(c.proto, -1)
	c.srv.remove(c)
}

// getBuffer gets one for the connection's user, see buffers.get.
func (c *conn) getBuffer(size int) *buffer { return c.srv.buffers.get(c.holder(), size) }

// getLarge gets one for the connection's user, see buffers.getLarge.
func (c *conn) getLarge(size int) *buffer { return c.srv.buffers.getLarge(c.holder(), size) }

// short reports that the connection's user holds more than a share of the budget. A watch
// whose client does not read at such a time is ended, the others write without a buffer
// where they may have to wait.
func (c *conn) short() bool { return c.srv.buffers.over(c.holder(), 0) }

// abort closes the socket under whoever is using the connection.
func (c *conn) abort() { _ = c.raw.Close() }

// closeIfIdle closes a connection that waits for a request.
func (c *conn) closeIfIdle() {
	if c.state.CompareAndSwap(connIdle, connClosed) {
		_ = c.nc.Close() // over TLS with a goodbye, which an idle client has room for
	}
}

// goAway tells a client of HTTP/2 to go on elsewhere.
func (c *conn) goAway() {
	if h := c.h2.Load(); h != nil {
		h.shutdown()
	}
}

// contain ends the connection when its goroutine panics in the transport itself.
func (c *conn) contain() {
	if e := recover(); e != nil {
		c.srv.panics.Recovered("connection", e)
		c.end()
	}
}
