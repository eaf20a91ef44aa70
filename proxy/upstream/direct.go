package upstream

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
	// directIdle is how long an unused connection stays open. kube-apiserver closes
	// idle ones after 90 s. A write that meets the close of a connection fails: better
	// that this end is the first to close.
	directIdle = 30 * time.Second
	// maxResponseHead bounds the head of a response, in bytes, as http.Transport does.
	maxResponseHead = 10 << 20
)

// direct is an http.RoundTripper over HTTP/1.1 that works in the goroutine of its
// caller, for requests that leave in one piece. http.Transport has two goroutines for
// each connection, and when nothing else goes on each handing over wakes another
// thread, which costs more than what is handed over.
//
// The response's body must be read to its end, or closed. direct is safe for
// concurrent use.
type direct struct {
	addr             string
	dial             dialFunc
	tls              *tls.Config // nil for plain text
	handshakeTimeout time.Duration

	mu struct {
		sync.Mutex
		idle   []*directConn // the one used last at the end
		reaper *time.Timer   // runs while there are idle ones
		closed bool          // nothing becomes idle any more
	}
}

// newDirect makes one for the server at base.
func newDirect(base *url.URL, dial dialFunc, config *tls.Config, handshakeTimeout time.Duration) *direct {
	d := &direct{dial: dial, handshakeTimeout: handshakeTimeout}
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
func (d *direct) takes(req *http.Request) bool {
	return (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil) && req.Header["Upgrade"] == nil
}

// RoundTrip implements http.RoundTripper. Of the context's httptrace.ClientTrace it calls
// GotConn and WroteHeaders. A read that fails on a connection used before, which the
// server may have closed at that moment, is sent once more on a new one.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	c, err := d.get(req.Context())
	if err != nil {
		return nil, err
	}
	again := c.used && safe(req.Method) && req.GetBody == nil
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
func (d *direct) send(c *directConn, req *http.Request) (*http.Response, error) {
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
	resp.Body = &directBody{body: resp.Body, resp: resp, conn: c, pool: d}
	return resp, nil
}

// get returns an idle connection that is still open, or a new one.
func (d *direct) get(ctx context.Context) (*directConn, error) {
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

func (d *direct) pop() *directConn {
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

func (d *direct) open(ctx context.Context) (*directConn, error) {
	nc, err := d.dial(ctx, "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	c := &directConn{Conn: nc}
	if q, ok := nc.(quieter); ok {
		c.probe = q.quiet
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
func (d *direct) put(c *directConn, resp *http.Response) {
	if !c.unlink() || resp.Close || resp.Request.Close || c.probe == nil {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed || len(d.mu.idle) >= directRequests {
		_ = c.Close()
		return
	}
	d.mu.idle = append(d.mu.idle, c)
	if d.mu.reaper == nil {
		d.mu.reaper = time.AfterFunc(directIdle, d.reap)
	}
}

// reap closes what was idle for too long.
func (d *direct) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(d.mu.idle) && now.Sub(d.mu.idle[n].since) >= directIdle {
		_ = d.mu.idle[n].Close()
		n++
	}
	d.mu.idle = append(d.mu.idle[:0], d.mu.idle[n:]...)
	d.mu.reaper = nil
	if len(d.mu.idle) > 0 {
		d.mu.reaper = time.AfterFunc(directIdle-now.Sub(d.mu.idle[0].since), d.reap)
	}
}

// CloseIdleConnections closes the connections that are not in use, and the others
// when their responses end.
func (d *direct) CloseIdleConnections() {
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

// directConn is a connection of a direct; one request has it at a time.
type directConn struct {
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
type quieter interface{ quiet() bool }

// interrupt ends whatever the connection waits for.
func (c *directConn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

func (c *directConn) drop() {
	c.unlink()
	_ = c.Close()
}

// quiet reports whether the server has neither closed the idle connection nor sent
// anything: what it says unasked is that it will close, or the answer to nobody.
func (c *directConn) quiet() bool {
	return time.Since(c.since) < directIdle && c.probe() && !c.holds()
}

// holds reports whether something was received already, with the last response, that is
// not read yet: in the buffer here, or in the TLS record that it came in.
func (c *directConn) holds() bool {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil { // nothing is waited for
		return true
	}
	_, err := c.br.Peek(1)
	return !errors.Is(err, os.ErrDeadlineExceeded) || c.SetReadDeadline(time.Time{}) != nil
}

// exchange sends req and reads the head of its response.
func (c *directConn) exchange(req *http.Request) (*http.Response, error) {
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

// directBody gives the connection back when the response has ended. Close may be
// called while Read is under way.
type directBody struct {
	body io.Reader
	resp *http.Response
	pool *direct
	err  error // of Read, final

	mu   sync.Mutex
	conn *directConn // nil when it was given back or closed
}

// Read implements io.Reader.
func (b *directBody) Read(p []byte) (int, error) {
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
func (b *directBody) Close() error {
	if c := b.take(); c != nil {
		c.drop()
	}
	return nil
}

func (b *directBody) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn == nil
}

func (b *directBody) take() *directConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.conn
	b.conn = nil
	return c
}
