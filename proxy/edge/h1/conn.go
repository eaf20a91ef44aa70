package h1

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// Serve serves requests until the connection ends or is handed over. The first byte of the first
// one is there.
func Serve(edgeConn *edge.Conn) {
	c := &conn{Conn: edgeConn}
	c.resume = c.serve
	c.serve()
}

func (c *conn) serve() {
	defer c.Contain()
	for more := true; more; more = c.AwaitRequest() {
		switch c.serveRequest() {
		case keepOpen:
			continue
		case handedOver:
			return
		case linger:
			c.Linger(c.Options.LingerTimeout)
		case closeNow:
		}
		break
	}
	c.End()
}

// serveRequest reads one request, has the handler respond and writes the response.
func (c *conn) serveRequest() verdict {
	x, rejection := c.readRequest()
	if x == nil {
		if rejection == 0 {
			return closeNow // the client left or was too slow
		}
		c.reject(rejection)
		return linger
	}
	resp := c.Call(&x.ctx, &x.req)
	switch {
	case resp.Upgrade != nil:
		return x.upgrade(resp)
	case resp.Stream != nil:
		return x.startStream(resp)
	}
	n, keep, err := x.respond(resp)
	return x.finish(resp, n, keep, err)
}

// readRequest reads and copies the header of a request. If it returns none, rejection is the status
// to respond with, or 0 if the client is gone.
func (c *conn) readRequest() (x *exchange, rejection int) {
	req := fasthttp.AcquireRequest()
	if rejection := c.readHead(&req.Header); rejection >= 0 {
		fasthttp.ReleaseRequest(req)
		return nil, rejection
	}
	x = &exchange{c: c}
	x.ctx.x, x.ctx.Base = x, c.Base
	if err := x.copyHead(&req.Header); err != nil {
		fasthttp.ReleaseRequest(req)
		switch {
		case errors.Is(err, errUnknownExpectation):
			return nil, 417
		case errors.Is(err, errVersion):
			return nil, 505
		}
		return nil, 400
	}
	if length := req.Header.ContentLength(); length > 0 || length == -1 {
		x.body.x, x.body.req, x.body.length = x, req, int64(length)
		x.req.Body, x.req.ContentLength = &x.body, int64(length)
		c.In.Mode = edge.ReadBody
		return x, 0
	}
	fasthttp.ReleaseRequest(req)
	c.In.Mode = edge.ReadWait
	c.In.ReleaseEmpty()
	return x, 0
}

// readHead parses a header, in the small buffer if it fits. It returns a negative
// number when it could, else the status to reject it with, 0 for none.
func (c *conn) readHead(h *fasthttp.RequestHeader) int {
	c.In.Mode = edge.ReadHead
	if rejection := c.awaitHead(); rejection >= 0 {
		return rejection
	}
	switch err := h.Read(c.In.Buf); {
	case err == nil:
		return -1
	case isSmallBuffer(err):
		return 431
	case c.In.Err != nil, errors.Is(err, io.EOF):
		return 0
	}
	if b, _ := c.In.Buf.Peek(c.In.Buf.Buffered()); bytes.HasPrefix(b, http2PrefaceLine) {
		return 505 // fasthttp takes it for a malformed target
	}
	return 400
}

func isSmallBuffer(err error) bool {
	var small *fasthttp.ErrSmallBuffer
	return errors.As(err, &small)
}

// http2PrefaceLine begins a connection that speaks HTTP/2 (RFC 9113, section 3.4).
var http2PrefaceLine = []byte("PRI * HTTP/2.0\r\n")

// awaitHead reads until the buffer has the whole header. The parser begins anew with every read, so
// that a header in records of one byte would cost it the square of its length.
func (c *conn) awaitHead() (rejection int) {
	in := &c.In
	for seen := 0; ; {
		b, _ := in.Buf.Peek(in.Buf.Buffered())
		switch { // an empty line before the request (RFC 9112, 2.2)
		case len(b) > 0 && b[0] == '\n':
			_, _ = in.Buf.Discard(1)
			continue
		case len(b) > 1 && b[0] == '\r':
			if b[1] != '\n' {
				return 400
			}
			_, _ = in.Buf.Discard(2)
			continue
		}
		if end := headEnd(b, seen); end >= 0 {
			if bytes.HasSuffix(b[:end], crlfcrlf) {
				return -1
			}
			return 400 // lines that end in a line feed alone
		}
		seen = max(0, len(b)-2)
		switch {
		case len(b) < in.Buf.Size():
			if _, err := in.Buf.Peek(len(b) + 1); err != nil {
				return 0
			}
		case len(b) >= c.Options.MaxHeaderBytes:
			return 431
		default:
			in.Grow(c.Options.MaxHeaderBytes)
		}
	}
}

// headEnd returns the end of the first empty line after another line, in any form that a parser
// might accept, or -1 if there is none. It ignores ends before from.
func headEnd(b []byte, from int) int {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
		switch rest := b[from:]; {
		case bytes.HasPrefix(rest, crlfcrlf[:2]):
			return from + 2
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		}
	}
}

// reject responds to input that is not a valid request, as net/http's server does: in plain text,
// and then it closes the connection.
func (c *conn) reject(status int) {
	code := strconv.Itoa(status)
	c.Metrics.Malformed.WithLabelValues(code).Inc()
	c.Metrics.Rejections.Count(edge.ReasonFor(status))
	text := code + " " + fasthttp.StatusMessage(status)
	_, _ = io.WriteString(&c.Out, "HTTP/1.1 "+text+
		"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+text)
}
