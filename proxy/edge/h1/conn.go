package h1

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// verdict says what becomes of a connection after a request.
type verdict uint8

const (
	keepOpen verdict = iota // wait for the next request
	closeNow
	// linger lets a client that is still sending read the answer first.
	linger
	// handedOver: another goroutine owns the connection now.
	handedOver
)

// Serve serves requests until the connection ends or is handed over. The first byte of
// the first is there.
func Serve(c *edge.Conn) { (&conn{c}).serve() }

// conn is an HTTP/1.1 connection.
type conn struct{ *edge.Conn }

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

// serveRequest reads one request, has it answered and writes the answer.
func (c *conn) serveRequest() verdict {
	x, refusal := c.readRequest()
	if x == nil {
		if refusal == 0 {
			return closeNow // the client left or was too slow
		}
		c.reject(refusal)
		return linger
	}
	resp := c.Call(&x.ctx, &x.req)
	switch {
	case resp.Upgrade != nil:
		return c.upgrade(x, resp)
	case resp.Stream != nil:
		return c.stream(x, resp)
	}
	n, keep, err := c.respond(x, resp)
	return x.finish(resp, n, keep, err)
}

// readRequest reads and copies the head of a request. Without one, refusal is the
// status to answer with, or 0 when there is nobody to answer.
func (c *conn) readRequest() (x *exchange, refusal int) {
	req := fasthttp.AcquireRequest()
	if refusal := c.readHead(&req.Header); refusal >= 0 {
		fasthttp.ReleaseRequest(req)
		return nil, refusal
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

// readHead parses a head, with the small buffer if it fits. It returns a negative
// number when it could, else the status to refuse with, 0 for none.
func (c *conn) readHead(h *fasthttp.RequestHeader) int {
	c.In.Mode = edge.ReadHead
	if refusal := c.awaitHead(); refusal >= 0 {
		return refusal
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

// http2PrefaceLine begins a connection that speaks HTTP/2 (RFC 9113, section 3.4).
var http2PrefaceLine = []byte("PRI * HTTP/2.0\r\n")

// awaitHead reads until the buffer has the whole head. The parser begins anew with
// every read, so that a head in records of one byte would cost it the square of its
// length.
func (c *conn) awaitHead() (refusal int) {
	for seen := 0; ; {
		b, _ := c.In.Buf.Peek(c.In.Buf.Buffered())
		if len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
			_, _ = c.In.Buf.Discard(1) // an empty line before the request (RFC 9112, 2.2)
			continue
		}
		if bytes.HasSuffix(b, crlfcrlf) {
			return -1 // as most come; nothing more than this request is here
		}
		if end := headEnd(b, seen); end >= 0 {
			if bytes.HasSuffix(b[:end], crlfcrlf) {
				return -1
			}
			return 400 // lines that end in a line feed alone
		}
		seen = max(0, len(b)-2)
		switch {
		case len(b) < c.In.Buf.Size():
			if _, err := c.In.Buf.Peek(len(b) + 1); err != nil {
				return 0
			}
		case len(b) >= c.Options.MaxHeaderBytes:
			return 431
		default:
			c.In.Grow(c.Options.MaxHeaderBytes)
		}
	}
}

// headEnd is where the first empty line behind another ends, in any form that a parser
// might take for one; -1 when there is none. Nothing ends before from.
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

func isSmallBuffer(err error) bool {
	var small *fasthttp.ErrSmallBuffer
	return errors.As(err, &small)
}

// reject answers a request that never became one, as net/http's server does: in
// plain text, and the connection ends.
func (c *conn) reject(status int) {
	code := strconv.Itoa(status)
	c.Metrics.Malformed.WithLabelValues(code).Inc()
	c.Metrics.Rejections.Count(edge.ReasonFor(status))
	text := code + " " + fasthttp.StatusMessage(status)
	_, _ = io.WriteString(&c.Out, "HTTP/1.1 "+text+
		"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+text)
}

// respond writes a response with a Body, a BodyTo or neither. keep says whether
// the connection may be used for another request.
func (c *conn) respond(x *exchange, resp *api.Response) (written int64, keep bool, err error) {
	keep = x.mayKeep(resp)
	f := framing{length: int64(len(resp.Body)), close: !keep}
	withBody := edge.BodyAllowed(resp.Status) && !x.head
	if resp.BodyTo != nil {
		if f.length = resp.Length; f.length < 0 {
			f.length = -1
			f.chunked = withBody && !x.http10
			f.close = f.close || withBody && x.http10 // its end is the connection's
		}
	}
	if !edge.BodyAllowed(resp.Status) || x.head && resp.Header.Has("Content-Length") {
		f.length = -1
	}
	x.beginFinal()
	switch {
	case !withBody:
		_, err = c.writeBytes(x, resp, f, nil)
	case resp.BodyTo == nil:
		written, err = c.writeBytes(x, resp, f, resp.Body)
	default:
		written, err = c.writeBodyTo(x, resp, f)
	}
	return written, !f.close && err == nil, err
}

// writeBytes writes a head and a body that is there, in one write when both are
// small.
func (c *conn) writeBytes(x *exchange, resp *api.Response, f framing, body []byte) (written int64, err error) {
	buf := c.Buffer(edge.SmallBuffer)
	defer c.Buffers.Put(buf)
	b := c.appendHead(buf.B, x, resp.Status, resp.Header, f)
	head := len(b)
	with := max(0, min(len(body), cap(b)-head))
	b = append(b, body[:with]...)
	buf.B = b
	n, err := c.Out.Write(b)
	if err == nil && with < len(body) {
		var m int
		m, err = c.Out.Write(body[with:])
		n += m
	}
	return int64(max(0, n-head)), err
}

// writeBodyTo writes a head and a body that writes itself. When that fails before
// anything was sent, the client gets a 500 instead; afterwards only the end of the
// connection can tell it.
func (c *conn) writeBodyTo(x *exchange, resp *api.Response, f framing) (written int64, err error) {
	known := f.length >= 0
	w := &bodyWriter{dst: &c.Out, buf: c.Buffer(edge.LargeBuffer), known: known, left: f.length, chunked: f.chunked, urgent: !known && !resp.Ready}
	defer func() { c.Buffers.Put(w.buf) }()
	if resp.Ready && (!known || f.length > edge.RecordSize) {
		c.Out.Gather()
		defer func() {
			if releaseErr := c.Out.Release(); err == nil {
				err = releaseErr
			}
		}()
	}
	w.buf.B = c.appendHead(w.buf.B, x, resp.Status, resp.Header, f)
	if w.urgent {
		// Its first byte may take long, and the client should know meanwhile.
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if _, err = c.WriteBody(resp.BodyTo, w); err == nil {
		err = w.finish()
	}
	switch {
	case err == nil:
	case !w.sent:
		failed := c.InternalError(edge.ErrBodyFailed)
		resp.Status = failed.Status
		_, _ = c.writeBytes(x, failed, framing{length: int64(len(failed.Body)), close: true}, failed.Body)
		return 0, err
	case x.http10 && !w.known:
		c.Reset() // or it would look complete
	}
	return w.written, err
}

// mayKeep says whether the connection can serve another request after this one.
func (x *exchange) mayKeep(resp *api.Response) bool {
	if !x.keepAlive || x.mustClose || x.c.Draining.Load() || edge.WantsClose(resp.Header) {
		return false
	}
	if x.req.Body == nil {
		return true
	}
	left := x.body.remaining()
	return left >= 0 && left <= drainLimit
}

// finish ends everything that belongs to the request: nobody watches or reads its
// connection any more, its context ends, its response is told. keep says whether
// the connection is wanted for another request.
func (x *exchange) finish(resp *api.Response, written int64, keep bool, err error) verdict {
	x.ctx.stopWatching()
	if x.req.Body != nil {
		x.body.seal()
	}
	x.ctx.Cancel()
	// Before the rest of a body is read: the client decides how long that takes.
	x.c.Done(resp, written, err)
	keep = keep && err == nil
	v := keepOpen
	if !keep {
		v = closeNow
	}
	if x.req.Body != nil && x.body.discard(keep) != 0 {
		v = linger
	}
	return v
}
