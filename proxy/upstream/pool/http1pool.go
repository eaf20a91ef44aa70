package pool

import (
	"bufio"
	"cmp"
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
	"slices"
	"sync"
	"time"
)

const (
	// MaxHTTP1 is how many requests at a time may have an HTTP/1.1 connection of their own.
	MaxHTTP1 = 32
	// http1Idle is how long an unused connection stays open. kube-apiserver closes idle connections
	// after 90 s. A write that meets the close of a connection fails, so this end is the first to
	// close.
	http1Idle = 30 * time.Second
	// maxResponseHead bounds the head of a response, in bytes, as http.Transport does.
	maxResponseHead = 10 << 20
)

// dialFunc is the type of net.Dialer.DialContext.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// http1Pool is an http.RoundTripper over HTTP/1.1 that works in the goroutine of its caller, for
// requests that are sent in one piece. http.Transport has two goroutines for each connection. On an
// idle machine each handover between them wakes another thread, which costs more than the work
// handed over.
//
// The response's body must be read to its end, or closed. It is safe for concurrent use.
type http1Pool struct {
	addr             string
	dial             dialFunc
	tls              *tls.Config // nil for plain text
	handshakeTimeout time.Duration

	mu struct {
		sync.Mutex
		idle   []*http1Conn // the one used last at the end
		reaper *time.Timer  // runs while there are idle connections
		closed bool         // no connection becomes idle any more
	}
}

// newHTTP1Pool returns a pool for the server at base.
func newHTTP1Pool(base *url.URL, dial dialFunc, config *tls.Config, handshakeTimeout time.Duration) *http1Pool {
	p := &http1Pool{dial: dial, handshakeTimeout: handshakeTimeout}
	port := "80"
	if base.Scheme == "https" {
		p.tls = config.Clone()
		p.tls.NextProtos = []string{"http/1.1"}
		p.tls.ServerName = cmp.Or(p.tls.ServerName, base.Hostname())
		port = "443"
	}
	p.addr = net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), port))
	return p
}

// accepts reports whether req can be sent here: its body, if any, is in memory.
func (p *http1Pool) accepts(req *http.Request) bool {
	return (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil) && req.Header["Upgrade"] == nil
}

// RoundTrip implements http.RoundTripper. It calls GotConn and WroteHeaders of the context's
// httptrace.ClientTrace. A read that fails on a reused connection, which the server may have closed
// at that moment, is sent once more on a new one.
func (p *http1Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	c, err := p.get(req.Context())
	if err != nil {
		return nil, err
	}
	again := c.used && Safe(req.Method) && req.GetBody == nil
	resp, err := p.send(c, req)
	if err == nil || !again || req.Context().Err() != nil {
		return resp, err
	}
	if c, err = p.open(req.Context()); err != nil {
		return nil, err
	}
	return p.send(c, req)
}

// send makes the request on c.
func (p *http1Pool) send(c *http1Conn, req *http.Request) (*http.Response, error) {
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
		p.put(c, resp)
		return resp, nil
	}
	resp.Body = &http1Body{body: resp.Body, resp: resp, conn: c, pool: p}
	return resp, nil
}

// get returns an idle connection that is still open, or a new one.
func (p *http1Pool) get(ctx context.Context) (*http1Conn, error) {
	for {
		c := p.pop()
		if c == nil {
			return p.open(ctx)
		}
		if c.isQuiet() {
			return c, nil
		}
		_ = c.Close()
	}
}

func (p *http1Pool) pop() *http1Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.idle)
	if n == 0 {
		return nil
	}
	c := p.mu.idle[n-1]
	p.mu.idle[n-1] = nil
	p.mu.idle = p.mu.idle[:n-1]
	return c
}

func (p *http1Pool) open(ctx context.Context) (*http1Conn, error) {
	nc, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	c := &http1Conn{Conn: nc}
	if q, ok := nc.(quieter); ok {
		c.probe = q.Quiet
	} else {
		c.probe = socketProbe(nc)
	}
	if p.tls != nil {
		t := tls.Client(nc, p.tls)
		ctx, cancel := context.WithTimeout(ctx, p.handshakeTimeout)
		defer cancel()
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("handshake: %w", err)
		}
		c.Conn = t
	}
	c.in.R = c.Conn
	c.br, c.bw = bufio.NewReader(&c.in), bufio.NewWriter(c.Conn)
	return c, nil
}

// put takes back the connection whose response has ended.
func (p *http1Pool) put(c *http1Conn, resp *http.Response) {
	if !c.unlink() || resp.Close || resp.Request.Close || c.probe == nil {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.idle) >= MaxHTTP1 {
		_ = c.Close()
		return
	}
	p.mu.idle = append(p.mu.idle, c)
	if p.mu.reaper == nil {
		p.mu.reaper = time.AfterFunc(http1Idle, p.reap)
	}
}

// reap closes connections that were idle for too long.
func (p *http1Pool) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(p.mu.idle) && now.Sub(p.mu.idle[n].since) >= http1Idle {
		_ = p.mu.idle[n].Close()
		n++
	}
	p.mu.idle = slices.Delete(p.mu.idle, 0, n)
	p.mu.reaper = nil
	if len(p.mu.idle) > 0 {
		p.mu.reaper = time.AfterFunc(http1Idle-now.Sub(p.mu.idle[0].since), p.reap)
	}
}

// CloseIdleConnections closes the connections that are not in use, and the others when their
// responses end.
func (p *http1Pool) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, c := range p.mu.idle {
		_ = c.Close()
	}
	p.mu.idle = nil
	if p.mu.reaper != nil {
		p.mu.reaper.Stop()
		p.mu.reaper = nil
	}
}

// http1Conn is a connection of an http1Pool. One request has it at a time.
type http1Conn struct {
	net.Conn
	in   io.LimitedReader
	br   *bufio.Reader
	bw   *bufio.Writer
	used bool // for an earlier request
	// since is when it became idle. probe examines its socket; see isQuiet.
	since time.Time
	probe func() bool
	// unlink ends the tie to the request's context; it returns false if that has ended before.
	unlink func() bool
}

// quieter is a connection that is no socket, and reports itself whether it is quiet.
type quieter interface{ Quiet() bool }

// interrupt ends whatever the connection waits for.
func (c *http1Conn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

func (c *http1Conn) drop() {
	c.unlink()
	_ = c.Close()
}

// isQuiet reports whether the server has neither closed the idle connection nor sent anything.
// Anything unasked is the announcement of a close, or a response to no request.
func (c *http1Conn) isQuiet() bool {
	return time.Since(c.since) < http1Idle && c.probe() && !c.isBuffered()
}

// isBuffered reports whether something was received with the last response that is not read yet: it
// is in the buffer here, or in the TLS record that it came in.
func (c *http1Conn) isBuffered() bool {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil { // do not wait
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
	c.in.N = maxResponseHead
	for {
		resp, err := http.ReadResponse(c.br, req)
		switch {
		case err != nil && c.in.N <= 0:
			return nil, errors.New("the head of the response is too large")
		case err != nil:
			return nil, fmt.Errorf("reading the head of the response: %w", err)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the upstream switches protocols unasked")
		case resp.StatusCode >= 200:
			c.in.N = math.MaxInt64
			return resp, nil
		}
	}
}

// http1Body returns the connection to the pool when the response has ended. Close may be called
// while Read is in progress.
type http1Body struct {
	body io.Reader
	resp *http.Response
	pool *http1Pool
	err  error // of Read, final

	mu   sync.Mutex
	conn *http1Conn // nil when it was returned or closed
}

// Read implements io.Reader.
func (b *http1Body) Read(p []byte) (int, error) {
	if b.err == nil && b.isClosed() {
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

func (b *http1Body) isClosed() bool {
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
