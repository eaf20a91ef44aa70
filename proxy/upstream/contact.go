package upstream

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// contacts knows the connections of feeds and when each last gave a sign of life:
// any byte, be it the answer to a ping.
type contacts struct {
	now  func() time.Time
	last atomic.Int64 // of any connection, unix nanoseconds
	mu   struct {
		sync.RWMutex
		watches map[*feedConn]int // how many watches each connection carries
	}
}

func newContacts(now func() time.Time) *contacts {
	c := &contacts{now: now}
	c.mu.watches = make(map[*feedConn]int)
	return c
}

// feedConn is a connection that remembers when it was last read from.
type feedConn struct {
	net.Conn
	contacts *contacts
	last     atomic.Int64

	dead *dead // of the server
	// What follows is of who looks for dead connections: since when it was silent when it was
	// suspected, and whether it was the only one; since when it was when others proved to
	// work, and when that was.
	suspected atomic.Int64
	alone     atomic.Bool
	outlived  int64
	since     time.Time
}

// track returns what makes a connection to the server that dead is of a feedConn.
func (c *contacts) track(dead *dead) func(net.Conn) net.Conn {
	return func(conn net.Conn) net.Conn { return &feedConn{Conn: conn, contacts: c, dead: dead} }
}

// Read implements net.Conn.
func (c *feedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := c.contacts.now().UnixNano()
		c.last.Store(now)
		c.contacts.last.Store(now)
	}
	return n, err
}

// tracked finds the feedConn under what an http.Transport calls its connection.
func tracked(conn net.Conn) *feedConn {
	for {
		switch c := conn.(type) {
		case *feedConn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// begin counts a watch on conn; end must be called when it ends.
func (c *contacts) begin(conn *feedConn) (end func()) {
	if conn == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.watches[conn]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.mu.watches[conn]--; c.mu.watches[conn] == 0 {
			delete(c.mu.watches, conn)
		}
	}
}

// oldest is the least recent contact of the connections that carry watches; that
// of the last connection when there is none.
func (c *contacts) oldest() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.mu.watches) == 0 {
		return c.last.Load()
	}
	oldest := int64(1<<63 - 1)
	for conn := range c.mu.watches {
		oldest = min(oldest, conn.last.Load())
	}
	return oldest
}

func (c *contacts) connections() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.watches)
}
