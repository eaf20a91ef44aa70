package health

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Feeds knows the connections of feeds and when each last gave a sign of life:
// any byte, be it the answer to a ping.
type Feeds struct {
	now  func() time.Time // as that of life
	last atomic.Int64     // of any connection, unix nanoseconds of now
	// pinged is the ping on a connection with watches that has waited longest for its answer
	// when that was last looked at; nil for none. See look.
	pinged atomic.Pointer[ping]
	mu     struct {
		sync.RWMutex
		// watches are those that each connection carries, by how they are read.
		watches map[*FeedConn]map[*Reads]struct{}
	}
}

// ping was sent on a connection that was silent since last; all unix nanoseconds.
type ping struct {
	conn       *FeedConn
	last, sent int64
}

func newFeeds(now func() time.Time) *Feeds {
	c := &Feeds{now: now}
	c.mu.watches = make(map[*FeedConn]map[*Reads]struct{})
	return c
}

// FeedConn is a connection that remembers when it was last read from.
type FeedConn struct {
	net.Conn
	contacts *Feeds
	last     atomic.Int64
	reads    Reads
	pings    atomic.Bool // it is pinged when it is silent, as those of HTTP/2 are

	dead *LostConns // of the server
	// What follows is of who looks for dead connections: since when it was silent when it was
	// suspected, and whether it was the only one; since when it was when others proved to
	// work, and when that was.
	suspected atomic.Int64
	alone     atomic.Bool
	outlived  int64
	since     time.Time
}

// Track returns what makes a connection to the server that dead is of a FeedConn.
func (c *Feeds) Track(dead *LostConns) func(net.Conn) net.Conn {
	return func(conn net.Conn) net.Conn { return &FeedConn{Conn: conn, contacts: c, dead: dead} }
}

// Read implements net.Conn.
func (c *FeedConn) Read(p []byte) (int, error) {
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

// TrackedConn finds the FeedConn under what an http.Transport calls its connection.
func TrackedConn(conn net.Conn) *FeedConn {
	for {
		switch c := conn.(type) {
		case *FeedConn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// Begin counts a watch on conn, which has pings or not, and is read as reads tells; end must
// be called when it ends.
func (c *Feeds) Begin(conn *FeedConn, pings bool, reads *Reads) (end func()) {
	if conn == nil {
		return func() {}
	}
	conn.pings.Store(pings)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.watches[conn] == nil {
		c.mu.watches[conn] = make(map[*Reads]struct{})
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
func (c *Feeds) taken(then int64, pings time.Duration) bool {
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

// At is a time of now's that is kept in nanoseconds, which have no monotonic reading; zero if
// that is 0.
func (c *Feeds) At(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	now := c.now()
	return now.Add(time.Duration(nanos - now.UnixNano()))
}

// Oldest is the least recent contact of the connections that carry watches, in nanoseconds of
// now; that of the last connection when there is none.
func (c *Feeds) Oldest() int64 {
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
func (c *Feeds) look(after time.Duration) {
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
func (c *Feeds) unanswered() time.Duration {
	p := c.pinged.Load()
	if p == nil || p.conn.last.Load() != p.last {
		return 0
	}
	return time.Duration(c.now().UnixNano() - p.sent)
}

// LastContact is when the connection was last read from.
func (c *FeedConn) LastContact() time.Time { return c.contacts.At(c.last.Load()) }

// CloseSilent closes the connections with watches to the server that lost is of, from which nothing
// was heard since then.
func (c *Feeds) CloseSilent(lost *LostConns, since time.Time) {
	for _, conn := range c.silent(since) {
		if conn.dead == lost {
			_ = conn.Close()
		}
	}
}

// LastContact is when the least recent contact was of the connections that carry watches.
func (c *Feeds) LastContact() time.Time { return c.At(c.Oldest()) }

// silent are the connections with watches from which nothing was heard since then.
func (c *Feeds) silent(since time.Time) []*FeedConn {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*FeedConn
	for conn := range c.mu.watches {
		if conn.last.Load() < since.UnixNano() {
			all = append(all, conn)
		}
	}
	return all
}

// Connections is how many of them there are.
func (c *Feeds) Connections() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.watches)
}
