package edge

import (
	"bufio"
	"net"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
)

// upgraded is the connection as an Upgrade gets it: what the client sent behind
// its request comes first, and what is written is counted.
type upgraded struct {
	net.Conn
	ahead   *bufio.Reader // nil when nothing was read ahead
	written atomic.Int64
}

// Read implements net.Conn.
func (u *upgraded) Read(p []byte) (int, error) {
	if u.ahead != nil {
		if n := u.ahead.Buffered(); n > 0 {
			return u.ahead.Read(p[:min(n, len(p))])
		}
		u.ahead = nil
	}
	return u.Conn.Read(p)
}

// Write implements net.Conn.
func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	u.written.Add(int64(n))
	return n, err
}

// CloseWrite closes the sending side, where the connection has sides.
func (u *upgraded) CloseWrite() error {
	if cw, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return u.Conn.Close()
}

// upgrade lets the response take the connection over until it returns.
func (c *conn) upgrade(x *exchange, resp *api.Response) verdict {
	x.ctx.stopWatching()
	if x.req.Upgrade == "" {
		c.srv.log.Error("the handler upgrades a request that does not ask for it", "method", x.req.Method, "path", x.req.Path)
		_, _, _ = c.respond(x, c.srv.internalError(errNoUpgrade))
		return x.finish(resp, 0, false, errNoUpgrade)
	}
	if x.req.Body != nil && x.body.remaining() != 0 {
		// Whoever passes the body on would read the connection beside the Upgrade.
		x.body.seal()
		x.keepAlive = false
		n, _, _ := c.respond(x, c.srv.badRequest(errEarly))
		return x.finish(resp, n, false, errEarly)
	}
	c.out.begin()
	u := &upgraded{Conn: c.nc}
	if c.in.br != nil {
		u.ahead = c.in.br
	}
	err := c.in.resume()
	if err == nil {
		err = c.out.disarm()
	}
	if err == nil {
		err = c.srv.runUpgrade(resp, u)
	}
	x.finish(resp, u.written.Load(), false, err)
	return closeNow
}

func (s *Server) runUpgrade(resp *api.Response, u *upgraded) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("upgrade", e)
			err = errPanicked
		}
	}()
	resp.Upgrade(u)
	return nil
}
