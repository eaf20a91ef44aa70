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
	now  func() time.Time // as that of life
	last atomic.Int64     // of any connection, unix nanoseconds of now
	// pinged is the ping on a connection with watches that has waited longest for its answer
	// when that was last looked at; nil for none. See look.
	pinged atomic.Pointer[ping]
	mu     struct {
		sync.RWMutex
		// watches are those that each connection carries, by how they are read.
		watches map[*feedConn]map[*waits]struct{}
	}
}

// ping was sent on a connection that was silent since last; all unix nanoseconds.
type ping struct {
	conn       *feedConn
	last, sent int64
}

func newContacts(now func() time.Time) *contacts {
	c := &contacts{now: now}
	c.mu.watches = make(map[*feedConn]map[*waits]struct{})
	return c
}

// feedConn is a connection that remembers when it was last read from.
type feedConn struct {
	net.Conn
	contacts *contacts
	last     atomic.Int64
	reads    waits
	pings    atomic.Bool // it is pinged when it is silent, as those of HTTP/2 are

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
	c.reads.begin(c.contacts.now().UnixNano())
	n, err := c.Conn.Read(p)
	now := c.contacts.now().UnixNano()
	c.reads.end(now)
	if n > 0 {
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

// begin counts a watch on conn, which has pings or not, and is read as reads tells; end must
// be called when it ends.
func (c *contacts) begin(conn *feedConn, pings bool, reads *waits) (end func()) {
	if conn == nil {
		return func() {}
	}
	conn.pings.Store(pings)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.watches[conn] == nil {
		c.mu.watches[conn] = make(map[*waits]struct{})
	}
	c.mu.watches[conn][reads] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.mu.watches[conn], reads); len(c.mu.watches[conn]) == 0 {
			delete(c.mu.watches, conn)
		}
	}
}

// taken reports whether all that had come at some time, in nanoseconds of now, was read from
// the connections of watches and by these. One of which nothing was heard for longer than its
// pings allow may still bring something. pings is how long they wait.
func (c *contacts) taken(then int64, pings time.Duration) bool {
	now := c.now().UnixNano()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn, watches := range c.mu.watches {
		if conn.pings.Load() && now-conn.last.Load() > int64(pings*3/2) || !conn.reads.since(then, now) {
			return false
		}
		for reads := range watches {
			if !reads.since(then, now) {
				return false
			}
		}
	}
	return true
}

// at is a time of now's that is kept in nanoseconds, which have no monotonic reading; zero if
// that is 0.
func (c *contacts) at(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	now := c.now()
	return now.Add(time.Duration(nanos - now.UnixNano()))
}

// oldest is the least recent contact of the connections that carry watches, in nanoseconds of
// now; that of the last connection when there is none.
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

// look finds out which pings are waited for. They are sent after a time of silence.
func (c *contacts) look(after time.Duration) {
	var oldest *ping
	for _, conn := range c.silent(c.now().Add(-after)) {
		if last := conn.last.Load(); conn.pings.Load() && (oldest == nil || last < oldest.last) {
			oldest = &ping{conn, last, last + int64(after)}
		}
	}
	c.pinged.Store(oldest)
}

// unanswered is for how long a ping has waited for its answer. Of one that was answered since
// the last look nothing is waited for.
func (c *contacts) unanswered() time.Duration {
	p := c.pinged.Load()
	if p == nil || p.conn.last.Load() != p.last {
		return 0
	}
	return time.Duration(c.now().UnixNano() - p.sent)
}

// silent are the connections with watches from which nothing was heard since then.
func (c *contacts) silent(since time.Time) []*feedConn {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*feedConn
	for conn := range c.mu.watches {
		if conn.last.Load() < since.UnixNano() {
			all = append(all, conn)
		}
	}
	return all
}

func (c *contacts) connections() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.watches)
}
