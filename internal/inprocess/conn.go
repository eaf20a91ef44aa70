package inprocess

import (
	"bufio"
	"io"
	"net"
	"time"
)

// conn is one end of a connection in memory. Unlike those of net.Pipe its writes
// do not wait for the reader, and each direction can be closed on its own.
type conn struct {
	in, out *pipe
	local   addr
	remote  addr
}

// newConns makes the two ends of a connection.
func newConns(client string) (clientEnd, serverEnd *conn) {
	up, down := newPipe(nil), newPipe(nil)
	const server = "kubeweir"
	return &conn{down, up, addr(client), addr(server)}, &conn{up, down, addr(server), addr(client)}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b, true) }

// CloseWrite ends this side's direction: the peer reads io.EOF.
func (c *conn) CloseWrite() error {
	c.out.endWrite(io.EOF)
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.out.endWrite(io.EOF)
	c.in.endRead(net.ErrClosed)
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

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

// addr is the address of an end.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "inprocess" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// switched is the client's end of an upgraded connection behind its 101, of which
// more may have been read already.
type switched struct {
	*conn
	ahead  *bufio.Reader
	unlink func() bool // from the client's context
}

// Read implements io.Reader.
func (s *switched) Read(b []byte) (int, error) {
	if s.ahead.Buffered() > 0 {
		return s.ahead.Read(b)
	}
	return s.conn.Read(b)
}

// Close implements io.Closer.
func (s *switched) Close() error {
	s.unlink()
	return s.conn.Close()
}
