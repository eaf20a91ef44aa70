package health

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Conns are the upstream's open connections of HTTP/2. They know which of them are feed
// connections, which carry watches of the cache, and when each was last heard from. It is safe for
// concurrent use.
type Conns struct {
	now clock
	log *slog.Logger
	// Feed connections are pinged after pingInterval of silence. contact is called for every byte
	// on them.
	pingInterval time.Duration
	contact      func()

	heard atomic.Int64 // last byte on any feed connection

	mu     sync.RWMutex
	all    map[*Conn]struct{}
	closed bool
	feeds  map[*Conn]int // how many watches each feed connection carries
}

// Conn is one of them.
type Conn struct {
	net.Conn
	all    *Conns
	server *Server
	open   *atomic.Int64 // counts those of its transport
	feed   bool          // its bytes are signs of life
	heard  atomic.Int64  // when it was last read from; 0: never
	pings  atomic.Bool   // it is pinged when it is silent, as feed connections of HTTP/2 are

	pingTimeout time.Duration // for how long it may bring nothing, 0 for ever; of the reader
	doubt       doubt         // of the monitor
}

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func newConns(now clock, log *slog.Logger, pingInterval time.Duration, contact func()) *Conns {
	return &Conns{now: now, log: log, pingInterval: pingInterval, contact: contact, all: make(map[*Conn]struct{}), feeds: make(map[*Conn]int)}
}

// Dial wraps dial to track its connections to server. It counts those that are open in open.
func (c *Conns) Dial(dial dialFunc, server *Server, open *atomic.Int64, feed bool) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			_ = conn.Close()
			return nil, ErrClosed
		}
		tracked := &Conn{Conn: conn, all: c, server: server, open: open, feed: feed}
		c.all[tracked] = struct{}{}
		open.Add(1)
		return tracked, nil
	}
}

// Close closes all connections, and those that would still be opened. An http.Transport closes only
// those that are idle: one of HTTP/2 whose last request is just ending would stay for 90 s.
func (c *Conns) Close() {
	c.mu.Lock()
	all := c.all
	c.all, c.closed = nil, true
	c.mu.Unlock()
	for conn := range all {
		_ = conn.Conn.Close()
	}
}

// LimitPings ends the HTTP/2 connections of t that receive no byte for timeout. They are pinged
// when they receive no frame for a while. An unanswered ping means nothing while bytes arrive: on a
// slow link its response waits behind data, and a large frame is reported only at its end.
func LimitPings(t *http.Transport, timeout time.Duration) {
	const name = "h2"
	upgrade := t.TLSNextProto[name]
	t.TLSNextProto[name] = func(authority string, conn *tls.Conn) http.RoundTripper {
		if c := connOf(conn); c != nil {
			c.limitPings(timeout)
		}
		return upgrade(authority, conn)
	}
}

func (c *Conn) limitPings(timeout time.Duration) {
	now := c.all.now()
	c.pingTimeout = timeout
	c.heard.CompareAndSwap(0, now.UnixNano())
	_ = c.SetReadDeadline(now.Add(timeout))
}

// FeedConn returns the feed connection under what an http.Transport calls its connection, nil if it
// is none.
func FeedConn(conn net.Conn) *Conn {
	if c := connOf(conn); c != nil && c.feed {
		return c
	}
	return nil
}

func connOf(conn net.Conn) *Conn {
	for {
		switch c := conn.(type) {
		case *Conn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if c.feed && n > 0 {
		c.all.heard.Store(c.heard.Load())
		c.all.contact()
	}
	return n, err
}

// read reads until the ping timeout.
func (c *Conn) read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		now := c.all.now()
		if n > 0 {
			c.heard.Store(now.UnixNano())
		}
		if c.pingTimeout == 0 || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		left := c.LastContact().Add(c.pingTimeout).Sub(now)
		if left <= 0 {
			return 0, errPingTimeout
		}
		if err := c.SetReadDeadline(now.Add(left)); err != nil {
			return 0, err
		}
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.all.mu.Lock()
	if _, ok := c.all.all[c]; ok {
		delete(c.all.all, c)
		c.open.Add(-1)
	}
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// LastContact returns when the connection was last read from.
func (c *Conn) LastContact() time.Time { return c.all.now.at(c.heard.Load()) }

// Watch counts a watch on conn, which is nil if it is not a feed connection. pings reports whether
// conn is pinged. end must be called when the watch ends.
func (c *Conns) Watch(conn *Conn, pings bool) (end func()) {
	if conn == nil {
		return func() {}
	}
	conn.pings.Store(pings)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feeds[conn]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.feeds[conn]--; c.feeds[conn] == 0 {
			delete(c.feeds, conn)
		}
	}
}

// Feeds returns how many connections carry watches.
func (c *Conns) Feeds() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.feeds)
}

// LastContact returns the least recent contact of the connections that carry watches, or that of
// the last feed connection if there is none. It is zero before the first.
func (c *Conns) LastContact() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.feeds) == 0 {
		return c.now.at(c.heard.Load())
	}
	oldest := int64(1<<63 - 1)
	for conn := range c.feeds {
		oldest = min(oldest, conn.heard.Load())
	}
	return c.now.at(oldest)
}

// CloseSilent closes the connections with watches to a server from which nothing was heard since
// then.
func (c *Conns) CloseSilent(server *Server, since time.Time) {
	for _, conn := range c.silent(since) {
		if conn.server == server {
			_ = conn.Close()
		}
	}
}

// silent returns the connections with watches from which nothing was heard since then.
func (c *Conns) silent(since time.Time) (silent []*Conn) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn := range c.feeds {
		if conn.heard.Load() < since.UnixNano() {
			silent = append(silent, conn)
		}
	}
	return silent
}

// unanswered returns for how long a ping is waited for. Pings are sent after PingInterval of
// silence.
func (c *Conns) unanswered() time.Duration {
	now := c.now.nanos()
	oldest := now
	c.mu.RLock()
	defer c.mu.RUnlock()
	for conn := range c.feeds {
		if conn.pings.Load() {
			oldest = min(oldest, conn.heard.Load())
		}
	}
	return max(0, time.Duration(now-oldest)-c.pingInterval)
}

// doubt is the monitor's state about a silent feed connection.
type doubt struct {
	// last is the beginning of its silence when that was noticed. alone is true if it was the only
	// feed connection.
	last  int64
	alone bool
	// outlived is since when it was silent when a probe proved that others work, which was at since.
	outlived int64
	since    time.Time
}

// closeLost closes the lost connections. heard is when the last sign of life came, on whatever
// connection.
//
// A feed connection whose ping is not answered in time is lost if a probe, over a new connection,
// was sent after that ping and is answered, and the feed connection still is silent Grace later. If
// nothing else was heard meanwhile, all connections of that time are lost: idle ones are closed,
// and requests that still wait are canceled.
func (c *Conns) closeLost(heard time.Time) {
	now, pings := c.now(), c.pingInterval
	for _, conn := range c.silent(now.Add(-pings - Grace)) {
		last, server, doubt := conn.heard.Load(), conn.server, &conn.doubt
		due := c.now.at(last).Add(pings + Grace)
		switch {
		case !conn.pings.Load(): // it may be silent
		case server.probeBegan.Load() < due.UnixNano():
			if doubt.last != last {
				doubt.last, doubt.alone = last, now.Sub(heard) < pings
			}
			server.Probe()
		case doubt.outlived != last:
			doubt.outlived, doubt.since = last, c.now.at(server.probeResponded.Load())
		case now.Sub(doubt.since) >= Grace:
			c.log.Info("a connection to the upstream is dead while others work, and is closed", "silence", now.Sub(due)+pings+Grace)
			_ = conn.Close()
			if server.abandon != nil && !doubt.alone {
				server.lostBefore.Store(server.probeBegan.Load())
				server.abandon()
			}
		}
	}
}
