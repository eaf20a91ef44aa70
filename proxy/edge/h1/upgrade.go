package h1

import (
	"bufio"
	"errors"
	"net"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// upgradedConn is the connection as an Upgrade gets it: what the client sent behind
// its request comes first, and what is written is counted.
type upgradedConn struct {
	net.Conn
	ahead   *bufio.Reader // nil when nothing was read ahead
	written atomic.Int64
}

// Read implements net.Conn.
func (u *upgradedConn) Read(p []byte) (int, error) {
	if u.ahead != nil {
		if n := u.ahead.Buffered(); n > 0 {
			return u.ahead.Read(p[:min(n, len(p))])
		}
		u.ahead = nil
	}
	return u.Conn.Read(p)
}

// Write implements net.Conn.
func (u *upgradedConn) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	u.written.Add(int64(n))
	return n, err
}

// CloseWrite closes the sending side, where the connection has sides.
func (u *upgradedConn) CloseWrite() error {
	if cw, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return u.Conn.Close()
}

// upgrade lets the response take the connection over until it returns.
func (c *conn) upgrade(x *exchange, resp *api.Response) verdict {
	x.ctx.stopWatching()
	if err := c.mayNotUpgrade(x); err != nil {
		return c.rejectUpgrade(x, resp, err)
	}
	x.beginFinal()
	u := &upgradedConn{Conn: c.NetConn}
	if c.In.Buf != nil {
		u.ahead = c.In.Buf
	}
	err := c.In.Resume()
	if err == nil {
		_, err = c.Out.Write(appendSwitch(nil, resp.Header))
	}
	if err == nil {
		err = c.Out.Disarm()
	}
	if err == nil {
		err = c.RunUpgrade(resp, u)
	}
	x.finish(resp, u.written.Load(), false, err)
	return closeNow
}

// mayNotUpgrade says why the response cannot have the connection.
func (c *conn) mayNotUpgrade(x *exchange) error {
	if x.req.Upgrade == "" {
		return edge.ErrNoUpgrade
	}
	if x.req.Body != nil && x.body.remaining() != 0 {
		// Whoever passes the body on would read the connection beside the Upgrade.
		return edge.ErrEarly
	}
	return nil
}

// rejectUpgrade answers instead of a response that cannot have the connection.
func (c *conn) rejectUpgrade(x *exchange, resp *api.Response, err error) verdict {
	if errors.Is(err, edge.ErrNoUpgrade) {
		c.Log.Error("the handler upgrades a request that does not ask for it", "method", x.req.Method, "path", x.req.Path)
		return c.respondInstead(x, resp, c.InternalError(err), err)
	}
	x.body.seal()
	x.keepAlive = false
	return c.respondInstead(x, resp, c.BadRequest(err), err)
}

// respondInstead writes another response, and ends this one with what became of it.
func (c *conn) respondInstead(x *exchange, resp, other *api.Response, err error) verdict {
	resp.Status = other.Status
	n, _, _ := c.respond(x, other)
	return x.finish(resp, n, false, err)
}

// appendSwitch writes the head that agrees to an upgrade, as the handler gives it.
func appendSwitch(dst []byte, header api.Header) []byte {
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\n"...)
	for i := range header {
		if edge.ValidName(header[i].Name) {
			dst = append(append(dst, header[i].Name...), ": "...)
			dst = append(edge.AppendValue(dst, header[i].Value), "\r\n"...)
		}
	}
	return append(dst, "\r\n"...)
}
