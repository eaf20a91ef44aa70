package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A server is a server under measurement.
type server struct {
	name  string
	addr  string      // host:port
	tls   *tls.Config // nil for plaintext
	token string      // bearer token, empty for none
	pids  []int       // processes whose processor time is counted
	pid   int         // process whose memory is read
}

const (
	userAgent = "kubeweir-bench"
	// headBytes is how much of a body is kept: enough for a list's metadata.
	headBytes = 2048
	// requestTime bounds one request, even on a busy machine.
	requestTime = 3 * time.Minute
)

// A conn is a client's HTTP/1.1 connection with one request at a time. It reads and drops bodies,
// which keeps the client cheap: it shares the machine with the servers. Not for concurrent use.
type conn struct {
	server *server
	nc     net.Conn
	br     *bufio.Reader
	stop   func() bool // detaches the connection from the context
	head   []byte
	sent   sentTimes
	// keep, if set, receives the whole next body.
	keep io.Writer
}

// A response is a response without its body. head is valid until the next request on the
// connection.
type response struct {
	status      int
	bytes       int64 // of the body, without the framing of chunks
	etag        string
	contentType string
	encoding    string
	chunked     bool
	length      int64 // -1 if unknown
	head        []byte
	took        time.Duration // since the request was sent; set by callers
}

// dial opens a connection that is closed at the latest when ctx ends. bufferSize is the size of its
// reads.
func dial(ctx context.Context, s *server, bufferSize int) (*conn, error) {
	return dialBy(ctx, net.Dialer{}, s, bufferSize)
}

// dialBy is dial with the given dialer.
func dialBy(ctx context.Context, d net.Dialer, s *server, bufferSize int) (*conn, error) {
	d.Timeout = 30 * time.Second
	nc, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	// Closing resets the connection: thousands of connections in TIME_WAIT would use up the ports.
	_ = nc.(*net.TCPConn).SetLinger(0)
	if s.tls != nil {
		t := tls.Client(nc, s.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("handshake with %s: %w", s.name, err)
		}
		nc = t
	}
	c := &conn{server: s, nc: nc, br: bufio.NewReaderSize(nc, bufferSize), head: make([]byte, 0, headBytes)}
	c.stop = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

func (c *conn) close() {
	c.stop()
	if t, ok := c.nc.(*tls.Conn); ok {
		// Skip TLS's close_notify, which may block.
		_ = t.NetConn().Close()
		return
	}
	_ = c.nc.Close()
}

// A requestSpec describes a request.
type requestSpec struct {
	method, path string
	accept       string
	gzip         bool
	ifNoneMatch  string
	body         []byte
	// The headers of the body.
	contentType, contentEncoding string
	// watchList means that the response is a watch and is complete after its initial events.
	watchList bool
	// header is appended to the header of a request over HTTP/1.1.
	header string
}

// complete fills in the defaults.
func (r requestSpec) complete() requestSpec {
	r.method, r.accept = cmp.Or(r.method, "GET"), cmp.Or(r.accept, "application/json")
	return r
}

// encoding returns the accepted content encoding.
func (r requestSpec) encoding() string {
	if r.gzip {
		return "gzip"
	}
	return "identity"
}

// encode returns the request as it is sent over HTTP/1.1.
func (s *server) encode(r requestSpec) []byte {
	var b bytes.Buffer
	r = r.complete()
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: %s\r\nAccept-Encoding: %s\r\n%s",
		r.method, r.path, s.addr, userAgent, r.accept, r.encoding(), r.header)
	for _, h := range [][2]string{{"If-None-Match", r.ifNoneMatch}, {"Content-Type", r.contentType}, {"Content-Encoding", r.contentEncoding}} {
		if h[1] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
		}
	}
	if s.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", s.token)
	}
	if r.body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	return b.Bytes()
}

// send implements caller.
func (c *conn) send(spec requestSpec) error {
	if err := c.nc.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	c.sent = append(c.sent, time.Now())
	_, err := c.nc.Write(c.server.encode(spec))
	return err
}

// receive implements caller.
func (c *conn) receive() (response, error) {
	c.head = c.head[:0]
	r, err := c.respond()
	if err == nil {
		err = c.body(&r)
	}
	r.head, r.took = c.head, c.sent.next()
	return r, err
}

// do sends a request and reads the whole response, whatever its status.
func (c *conn) do(request []byte) (response, error) {
	if err := c.nc.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return response{}, err
	}
	r, err := c.begin(request)
	if err != nil {
		return r, err
	}
	if err := c.body(&r); err != nil {
		return r, fmt.Errorf("body: %w", err)
	}
	r.head = c.head
	return r, nil
}

// get is like do but returns an error for every status that is not given.
func (c *conn) get(request []byte, statuses ...int) (response, error) {
	r, err := c.do(request)
	if err != nil {
		return r, err
	}
	for _, s := range statuses {
		if r.status == s {
			return r, nil
		}
	}
	line, _, _ := bytes.Cut(request, []byte("\r"))
	return r, fmt.Errorf("%s: status %d: %.300s", line, r.status, r.head)
}

// begin sends a request and reads the response's header.
func (c *conn) begin(request []byte) (response, error) {
	c.head = c.head[:0]
	if _, err := c.nc.Write(request); err != nil {
		return response{}, fmt.Errorf("send: %w", err)
	}
	return c.respond()
}

// respond reads a response's header.
func (c *conn) respond() (response, error) {
	r := response{length: -1}
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return r, fmt.Errorf("status line: %w", err)
	}
	if len(line) < 12 || string(line[:7]) != "HTTP/1." {
		return r, fmt.Errorf("status line %q", line)
	}
	if r.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return r, fmt.Errorf("status line %q", line)
	}
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return r, fmt.Errorf("header: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return r, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		r.field(name, bytes.TrimSpace(value))
	}
}

func (r *response) field(name, value []byte) {
	is := func(s string) bool { return len(name) == len(s) && strings.EqualFold(string(name), s) }
	switch {
	case is("Content-Length"):
		r.length, _ = strconv.ParseInt(string(value), 10, 64)
	case is("Transfer-Encoding"):
		r.chunked = strings.EqualFold(string(value), "chunked")
	case is("Content-Type"):
		r.contentType = string(value)
	case is("Content-Encoding"):
		r.encoding = string(value)
	case is("ETag"):
		r.etag = string(value)
	}
}

// body reads and drops the body.
func (c *conn) body(r *response) error {
	switch {
	case r.status == 304 || r.status == 204:
		return nil
	case r.chunked:
		return c.chunks(r)
	case r.length < 0:
		return fmt.Errorf("status %d and neither Content-Length nor chunked encoding", r.status)
	}
	return c.take(r, r.length)
}

func (c *conn) chunks(r *response) error {
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 64)
		if err != nil {
			return fmt.Errorf("size of chunk: %w", err)
		}
		if err := c.take(r, n); err != nil {
			return err
		}
		if _, err := c.br.Discard(len("\r\n")); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// take reads n bytes of the body.
func (c *conn) take(r *response, n int64) error {
	r.bytes += n
	for n > 0 {
		if c.br.Buffered() == 0 {
			if _, err := c.br.Peek(1); err != nil {
				return err
			}
		}
		p, err := c.br.Peek(int(min(n, int64(c.br.Buffered()))))
		if err != nil {
			return err
		}
		if room := headBytes - len(c.head); room > 0 {
			c.head = append(c.head, p[:min(room, len(p))]...)
		}
		if c.keep != nil {
			if _, err := c.keep.Write(p); err != nil {
				return err
			}
		}
		n -= int64(len(p))
		if _, err := c.br.Discard(len(p)); err != nil {
			return err
		}
	}
	return nil
}

// fetch sends one request on a connection of its own and returns the whole body.
func fetch(ctx context.Context, s *server, spec requestSpec) (response, []byte, error) {
	c, err := dial(ctx, s, 64<<10)
	if err != nil {
		return response{}, nil, err
	}
	defer c.close()
	var body bytes.Buffer
	c.keep = &body
	r, err := c.get(s.encode(spec), 200, 201, 204)
	return r, body.Bytes(), err
}
