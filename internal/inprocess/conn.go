package inprocess

import (
	"net"
	"time"
)

// conn is one end of a connection in memory. Unlike with net.Pipe, writes do not wait for the
// reader, and each direction can be closed separately, as with TCP.
type conn struct {
	in, out *pipe
	release func() bool // called by Close; may be nil
}

func newConns() (client, server *conn) {
	up, down := newPipe(), newPipe()
	return &conn{in: down, out: up}, &conn{in: up, out: down}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// CloseWrite makes the other end read io.EOF.
func (c *conn) CloseWrite() error {
	c.out.endWrite()
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.release != nil {
		c.release()
	}
	c.end()
	return nil
}

func (c *conn) end() {
	c.out.endWrite()
	c.in.endRead()
}

// LocalAddr implements net.Conn.
func (*conn) LocalAddr() net.Addr { return address }

// RemoteAddr implements net.Conn.
func (*conn) RemoteAddr() net.Addr { return address }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.reader, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writer, t)
	return nil
}

// address is the address of both ends.
var address = &net.UnixAddr{Name: "in-process"}
