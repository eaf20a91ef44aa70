package pool

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"time"
)

const (
	// MaxHTTP1 is how many forwarded requests at a time may have connections of
	// their own.
	MaxHTTP1 = 32
	// http1Idle is how long an unused connection stays open. kube-apiserver closes
	// idle ones after 90 s. A write that meets the close of a connection fails: better
	// that this end is the first to close.
	http1Idle = 30 * time.Second
	// maxResponseHead bounds the head of a response, in bytes, as http.Transport does.
	maxResponseHead = 10 << 20
)

// http1Pool is an http.RoundTripper over HTTP/1.1 that works in the goroutine of its
// caller, for requests that leave in one piece. http.Transport has two goroutines for
// each connection, and when nothing else goes on each handing over wakes another
// thread, which costs more than what is handed over.
//
// The response's body must be read to its end, or closed. http1Pool is safe for
// concurrent use.
type http1Pool struct {
	addr             string
	dial             dialFunc
	tls              *tls.Config // nil for plain text
	handshakeTimeout time.Duration

	mu struct {
		sync.Mutex
		idle   []*http1Conn // the one used last at the end
		reaper *time.Timer  // runs while there are idle ones
		closed bool         // nothing becomes idle any more
	}
}

// newHTTP1Pool makes one for the server at base.
func newHTTP1Pool(base *url.URL, dial dialFunc, config *tls.Config, handshakeTimeout time.Duration) *http1Pool {
	d := &http1Pool{dial: dial, handshakeTimeout: handshakeTimeout}
	port := base.Port()
	if base.Scheme == "https" {
		d.tls = config.Clone()
		d.tls.NextProtos = []string{"http/1.1"}
		if d.tls.ServerName == "" {
			d.tls.ServerName = base.Hostname()
		}
		if port == "" {
			port = "443"
		}
	}
	if port == "" {
		port = "80"
	}
	d.addr = net.JoinHostPort(base.Hostname(), port)
	return d
}

// takes reports whether req can be sent here: its body, if any, is in memory.
func (d *http1Pool) takes(req *http.Request) bool {
	return (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil) && req.Header["Upgrade"] == nil
}

// RoundTrip implements http.RoundTripper. Of the context's httptrace.ClientTrace it calls
// GotConn and WroteHeaders. A read that fails on a connection used before, which the
// server may have closed at that moment, is sent once more on a new one.
func (d *http1Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	c, err := d.get(req.Context())
	if err != nil {
		return nil, err
	}
	again := c.used && Safe(req.Method) && req.GetBody == nil
	resp, err := d.send(c, req)
	if err == nil || !again || req.Context().Err() != nil {
		return resp, err
	}
	if c, err = d.open(req.Context()); err != nil {
		return nil, err
	}
	return d.send(c, req)
}

// send makes the request on c.
func (d *http1Pool) send(c *http1Conn, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: c.used})
	}
	c.used = true
	c.unlink = context.AfterFunc(ctx, c.interrupt)
	resp, err := c.exchange(req)
	if err != nil {
		c.drop()
		return nil, err
	}
	if resp.Body == http.NoBody {
		d.put(c, resp)
		return resp, nil
	}
	resp.Body = &http1Body{body: resp.Body, resp: resp, conn: c, pool: d}
	return resp, nil
}

// get returns an idle connection that is still open, or a new one.
func (d *http1Pool) get(ctx context.Context) (*http1Conn, error) {
	for {
		c := d.pop()
		if c == nil {
			return d.open(ctx)
		}
		if c.quiet() {
			return c, nil
		}
		_ = c.Close()
	}
}

func (d *http1Pool) pop() *http1Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.mu.idle)
	if n == 0 {
		return nil
	}
	c := d.mu.idle[n-1]
	d.mu.idle[n-1] = nil
	d.mu.idle = d.mu.idle[:n-1]
	return c
}

func (d *http1Pool) open(ctx context.Context) (*http1Conn, error) {
	nc, err := d.dial(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	c := &http1Conn{Conn: nc}
	if q, ok := nc.(quieter); ok {
		c.probe = q.Quiet
	} else {
		c.initProbe(nc)
	}
	if d.tls != nil {
		t := tls.Client(nc, d.tls)
		ctx, cancel := context.WithTimeout(ctx, d.handshakeTimeout)
		defer cancel()
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("handshake: %w", err)
		}
		c.Conn = t
	}
	c.in.r = c.Conn
	c.br, c.bw = bufio.NewReader(&c.in), bufio.NewWriter(c.Conn)
	return c, nil
}

// put takes back the connection whose response has ended.
func (d *http1Pool) put(c *http1Conn, resp *http.Response) {
	if !c.unlink() || resp.Close || resp.Request.Close || c.probe == nil {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed || len(d.mu.idle) >= MaxHTTP1 {
		_ = c.Close()
		return
	}
	d.mu.idle = append(d.mu.idle, c)
	if d.mu.reaper == nil {
		d.mu.reaper = time.AfterFunc(http1Idle, d.reap)
	}
}

// reap closes what was idle for too long.
func (d *http1Pool) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(d.mu.idle) && now.Sub(d.mu.idle[n].since) >= http1Idle {
		_ = d.mu.idle[n].Close()
		n++
	}
	d.mu.idle = append(d.mu.idle[:0], d.mu.idle[n:]...)
	d.mu.reaper = nil
	if len(d.mu.idle) > 0 {
		d.mu.reaper = time.AfterFunc(http1Idle-now.Sub(d.mu.idle[0].since), d.reap)
	}
}

// CloseIdleConnections closes the connections that are not in use, and the others
// when their responses end.
func (d *http1Pool) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.closed = true
	for _, c := range d.mu.idle {
		_ = c.Close()
	}
	d.mu.idle = nil
	if d.mu.reaper != nil {
		d.mu.reaper.Stop()
		d.mu.reaper = nil
	}
}

// http1Conn is a connection of an http1Pool; one request has it at a time.
type http1Conn struct {
	net.Conn
	in   boundedReader
	br   *bufio.Reader
	bw   *bufio.Writer
	used bool // for a request before this one
	// since is when it became idle, probe looks at its socket (see quiet).
	since time.Time
	probe func() bool
	// unlink ends the tie to the request's context; false if that has ended before.
	unlink func() bool
}

// quieter is a connection that is no socket, and knows itself that it is quiet.
type quieter interface{ Quiet() bool }

// interrupt ends whatever the connection waits for.
func (c *http1Conn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

func (c *http1Conn) drop() {
	c.unlink()
	_ = c.Close()
}

// quiet reports whether the server has neither closed the idle connection nor sent
// anything: what it says unasked is that it will close, or the answer to nobody.
func (c *http1Conn) quiet() bool {
	return time.Since(c.since) < http1Idle && c.probe() && !c.holds()
}

// holds reports whether something was received already, with the last response, that is
// not read yet: in the buffer here, or in the TLS record that it came in.
func (c *http1Conn) holds() bool {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil { // nothing is waited for
		return true
	}
	_, err := c.br.Peek(1)
	return !errors.Is(err, os.ErrDeadlineExceeded) || c.SetReadDeadline(time.Time{}) != nil
}

// exchange sends req and reads the head of its response.
func (c *http1Conn) exchange(req *http.Request) (*http.Response, error) {
	err := req.Write(c.bw)
	if err == nil {
		err = c.bw.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	c.in.left = maxResponseHead
	for {
		resp, err := http.ReadResponse(c.br, req)
		switch {
		case errors.Is(err, errHeadTooLarge):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("reading the head of the response: %w", err)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the upstream switches protocols unasked")
		case resp.StatusCode >= 200:
			c.in.left = math.MaxInt64
			return resp, nil
		}
	}
}

var errHeadTooLarge = errors.New("the head of the response is too large")

// boundedReader reads at most left bytes.
type boundedReader struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errHeadTooLarge
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}

// http1Body gives the connection back when the response has ended. Close may be
// called while Read is under way.
type http1Body struct {
	body io.Reader
	resp *http.Response
	pool *http1Pool
	err  error // of Read, final

	mu   sync.Mutex
	conn *http1Conn // nil when it was given back or closed
}

// Read implements io.Reader.
func (b *http1Body) Read(p []byte) (int, error) {
	if b.err == nil && b.closed() {
		b.err = http.ErrBodyReadAfterClose
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	if err == nil {
		return n, nil
	}
	b.err = err
	c := b.take()
	switch {
	case c == nil: // closed meanwhile
	case err == io.EOF: // Readers return it bare.
		b.pool.put(c, b.resp)
	default:
		c.drop()
	}
	return n, err
}

// Close implements io.Closer.
func (b *http1Body) Close() error {
	if c := b.take(); c != nil {
		c.drop()
	}
	return nil
}

func (b *http1Body) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn == nil
}

func (b *http1Body) take() *http1Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.conn
	b.conn = nil
	return c
}
