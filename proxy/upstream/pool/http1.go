package pool

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// http1Conn is a connection of HTTP/1.1 that knows whether net/http waits for bytes from it. While it
// waits, nothing that was received is left in a buffer.
type http1Conn struct {
	net.Conn
	mu struct {
		sync.Mutex
		waiting, closed bool
	}
	changed sync.Cond // of mu
}

// dialHTTP1 makes the connections of dial http1Conns.
func dialHTTP1(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &http1Conn{Conn: conn}
		c.changed.L = &c.mu
		return c, nil
	}
}

// awaitReader returns when net/http waits for bytes from conn or has closed it. It has an effect on
// http1Conns only.
//
// Without it, a request may take an idle connection before net/http has seen that the server sent more
// than the last response, and get the rest as its response. net/http closes such a connection as long
// as no request uses it.
func awaitReader(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*http1Conn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.mu.waiting && !c.mu.closed {
		c.changed.Wait()
	}
}

func (c *http1Conn) Read(p []byte) (int, error) {
	c.set(&c.mu.waiting, true)
	defer c.set(&c.mu.waiting, false)
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *http1Conn) Close() error {
	c.set(&c.mu.closed, true)
	return c.Conn.Close()
}

func (c *http1Conn) set(state *bool, value bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*state = value
	c.changed.Broadcast()
}
