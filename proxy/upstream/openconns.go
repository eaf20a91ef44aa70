package upstream

import (
	"context"
	"net"
	"sync"
)

// openConns are the connections that are open, to be closed with the client. An
// http.Transport closes those that are idle at the moment; one of HTTP/2 whose last request
// is just ending would stay for another minute and a half.
type openConns struct {
	mu     sync.Mutex
	all    map[*openConn]struct{}
	closed bool
}

// openConn is one of them.
type openConn struct {
	net.Conn
	among *openConns
}

func newOpenConns() *openConns { return &openConns{all: make(map[*openConn]struct{})} }

// dial is dial, whose connections are kept in mind.
func (o *openConns) dial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &openConn{conn, o}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.closed {
			_ = conn.Close()
			return nil, errClosed
		}
		o.all[c] = struct{}{}
		return c, nil
	}
}

// Close implements net.Conn.
func (c *openConn) Close() error {
	c.among.mu.Lock()
	delete(c.among.all, c)
	c.among.mu.Unlock()
	return c.Conn.Close()
}

// close ends all connections, and those that would still be opened.
func (o *openConns) close() {
	o.mu.Lock()
	all := o.all
	o.all, o.closed = nil, true
	o.mu.Unlock()
	for c := range all {
		_ = c.Conn.Close()
	}
}
