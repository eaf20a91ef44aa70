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

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Conns are the connections that are open, to be closed with the client. An
// http.Transport closes those that are idle at the moment; one of HTTP/2 whose last request
// is just ending would stay for another minute and a half.
type Conns struct {
	mu     sync.Mutex
	all    map[*openConn]struct{}
	closed bool
}

// openConn is one of them.
type openConn struct {
	net.Conn
	among  *Conns
	open   *atomic.Int64 // of its kind
	dead   *LostConns    // of the server
	opened time.Time
	heard  atomic.Bool // it has brought something
	// What follows is used by who reads: for how long it may bring nothing, 0 for ever, and
	// when it last brought something.
	silence time.Duration
	last    time.Time
}

// errUnanswered ends a connection whose ping is not answered.
var errUnanswered = errors.New("the connection to the upstream is lost: a ping was not answered, and nothing else has come")

// EndSilent makes the HTTP/2 connections of t, which are pinged when they bring no frame for a
// while, end when they bring no byte for silence. That a ping is not answered in time says
// nothing while there are bytes: over a slow link its answer waits its turn behind all that
// is under way, and of a large frame nothing is told before its end.
func EndSilent(t *http.Transport, silence time.Duration) {
	const name = "h2"
	upgrade := t.TLSNextProto[name]
	t.TLSNextProto[name] = func(authority string, conn *tls.Conn) http.RoundTripper {
		if c := openedAs(conn); c != nil {
			c.last, c.silence = time.Now(), silence
			_ = c.SetReadDeadline(c.last.Add(silence))
		}
		return upgrade(authority, conn)
	}
}

// openedAs finds the openConn under what an http.Transport calls its connection.
func openedAs(conn net.Conn) *openConn {
	for {
		switch c := conn.(type) {
		case *openConn:
			return c
		case *FeedConn:
			conn = c.Conn
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// Read implements net.Conn.
func (c *openConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if n > 0 && !c.heard.Load() {
			c.heard.Store(true)
		}
		switch {
		case c.silence == 0:
			return n, err
		case n > 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			c.last = time.Now()
			return n, err
		}
		left := time.Until(c.last.Add(c.silence))
		if left <= 0 {
			return 0, errUnanswered
		}
		if err := c.SetReadDeadline(time.Now().Add(left)); err != nil {
			return 0, err
		}
	}
}

// NewConns has no connections.
func NewConns() *Conns { return &Conns{all: make(map[*openConn]struct{})} }

// Dial is dial, whose connections are kept in mind, and counted by open. dead is of the server.
func (o *Conns) Dial(dial dialFunc, open *atomic.Int64, dead *LostConns) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &openConn{Conn: conn, among: o, open: open, dead: dead, opened: time.Now()}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.closed {
			_ = conn.Close()
			return nil, ErrClosed
		}
		o.all[c] = struct{}{}
		open.Add(1)
		return c, nil
	}
}

// closeOvertaken closes connections that have brought nothing, not even the answer to a
// greeting, while one that was opened later did.
func (o *Conns) closeOvertaken(now time.Time) {
	var all []*openConn
	o.mu.Lock()
	for c := range o.all {
		if !c.heard.Load() && c.dead.overtook(c.opened, now) {
			all = append(all, c)
		}
	}
	o.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// Close implements net.Conn.
func (c *openConn) Close() error {
	c.among.mu.Lock()
	if _, ok := c.among.all[c]; ok {
		delete(c.among.all, c)
		c.open.Add(-1)
	}
	c.among.mu.Unlock()
	return c.Conn.Close()
}

// Close ends all connections, and those that would still be opened.
func (o *Conns) Close() {
	o.mu.Lock()
	all := o.all
	o.all, o.closed = nil, true
	o.mu.Unlock()
	for c := range all {
		_ = c.Conn.Close()
	}
}
