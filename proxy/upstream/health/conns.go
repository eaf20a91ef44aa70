package health

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Conns are the upstream's open connections of HTTP/2. They know which of them are feed connections,
// which carry watches of the cache, and when each was last heard from. It is safe for concurrent use.
type Conns struct {
	d     *Detector
	heard atomic.Int64         // last byte on any feed connection, in nanoseconds of now
	quiet atomic.Pointer[Conn] // the feed connection whose ping is waited for the longest, nil for none

	mu     sync.RWMutex
	all    map[*Conn]struct{}
	closed bool
	// feeds are the watches that each feed connection carries, by the reads of their bodies.
	feeds map[*Conn]map[*Reads]struct{}
}

// Conn is one of them.
type Conn struct {
	net.Conn
	all    *Conns
	server *Server
	open   *atomic.Int64 // counts those of its transport
	feed   bool          // its bytes are signs of life
	opened time.Time
	heard  atomic.Int64 // when it was last read from, in nanoseconds of now; 0: never
	reads  Reads
	pings  atomic.Bool // it is pinged when it is silent, as feed connections of HTTP/2 are

	pingTimeout time.Duration // for how long it may bring nothing, 0 for ever; of the reader
	doubt       doubt         // of the monitor
}

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func newConns(d *Detector) *Conns {
	return &Conns{d: d, all: make(map[*Conn]struct{}), feeds: make(map[*Conn]map[*Reads]struct{})}
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
		tracked := &Conn{Conn: conn, all: c, server: server, open: open, feed: feed, opened: c.d.now()}
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

// LimitPings ends the HTTP/2 connections of t, which are pinged when they bring no frame for a while,
// when they bring no byte for timeout. That a ping is not answered in time says nothing while there are
// bytes: on a slow link its answer waits behind data, and of a large frame nothing is told before its end.
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
	now := c.all.d.now()
	c.pingTimeout = timeout
	c.heard.CompareAndSwap(0, now.UnixNano())
	_ = c.SetReadDeadline(now.Add(timeout))
}

// FeedConn returns the feed connection under what an http.Transport calls its connection, nil if it is
// none.
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
	if !c.feed {
		return c.read(p)
	}
	now := c.all.d.now
	c.reads.begin(now().UnixNano())
	n, err := c.read(p)
	c.reads.end(now().UnixNano())
	if n > 0 {
		c.all.heard.Store(c.heard.Load())
		c.all.d.signOfLife()
	}
	return n, err
}

// read reads until the ping timeout.
func (c *Conn) read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		now := c.all.d.now()
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
func (c *Conn) LastContact() time.Time { return c.all.d.at(c.heard.Load()) }
