package h1

import (
	"bufio"
	"errors"
	"net"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

var errEarlyUpgrade = errors.New("the connection cannot be upgraded before the request's body has been sent")

// upgrade lets the response take the connection over until it returns.
func (x *exchange) upgrade(resp *api.Response) verdict {
	c := x.c
	x.ctx.stopWatching()
	if err := x.mayNotUpgrade(); err != nil {
		return x.rejectUpgrade(resp, err)
	}
	x.beginFinal()
	u := &upgradedConn{Conn: c.NetConn, ahead: c.In.Buf}
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

// mayNotUpgrade is why the response cannot have the connection, nil if it can.
func (x *exchange) mayNotUpgrade() error {
	if x.req.Upgrade == "" {
		return edge.ErrNoUpgrade
	}
	if x.req.Body != nil && x.body.remaining() != 0 {
		// A reader that forwards the body would read from the connection in parallel with the
		// Upgrade.
		return errEarlyUpgrade
	}
	return nil
}

// rejectUpgrade writes another response in place of one that cannot have the connection.
func (x *exchange) rejectUpgrade(resp *api.Response, err error) verdict {
	var other *api.Response
	if errors.Is(err, edge.ErrNoUpgrade) {
		other = x.c.RejectUpgrade(&x.req)
	} else {
		x.body.seal()
		x.keepAlive = false
		other = x.c.BadRequest(reason.EarlyUpgrade, err)
	}
	resp.Status = other.Status
	n, _, _ := x.respond(other)
	return x.finish(resp, n, false, err)
}

// appendSwitch writes the header that agrees to an upgrade, as the handler gives it.
func appendSwitch(dst []byte, header api.Header) []byte {
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\n"...)
	for i := range header {
		dst = appendField(dst, header[i].Name, header[i].Value)
	}
	return append(dst, "\r\n"...)
}

// upgradedConn is the connection for an Upgrade. Reads begin with the bytes that the client sent
// after its request, and written bytes are counted.
type upgradedConn struct {
	net.Conn
	ahead   *bufio.Reader // nil when nothing was read ahead
	written atomic.Int64
}

func (u *upgradedConn) Read(p []byte) (int, error) {
	if u.ahead != nil {
		if n := u.ahead.Buffered(); n > 0 {
			return u.ahead.Read(p[:min(n, len(p))])
		}
		u.ahead = nil
	}
	return u.Conn.Read(p)
}

func (u *upgradedConn) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	u.written.Add(int64(n))
	return n, err
}

// CloseWrite closes the sending side.
func (u *upgradedConn) CloseWrite() error {
	return u.Conn.(interface{ CloseWrite() error }).CloseWrite()
}
