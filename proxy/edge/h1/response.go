package h1

import (
	"io"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// framing is how the end of a response body is known.
type framing struct {
	// length is the Content-Length; -1: none is sent.
	length  int64
	chunked bool
	// close ends the connection after the response.
	close bool
}

// respond writes a response with a Body, a BodyTo or neither. keep is true if the connection may be
// used for another request.
func (x *exchange) respond(resp *api.Response) (written int64, keep bool, err error) {
	keep = x.mayKeep(resp)
	f := framing{length: int64(len(resp.Body)), close: !keep}
	withBody := edge.BodyAllowed(resp.Status) && !x.head
	if resp.BodyTo != nil {
		if f.length = max(resp.Length, -1); f.length < 0 {
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
		_, err = x.writeBytes(resp, f, nil)
	case resp.BodyTo == nil:
		written, err = x.writeBytes(resp, f, resp.Body)
	default:
		written, err = x.writeBodyTo(resp, f)
	}
	return written, !f.close && err == nil, err
}

// writeBytes writes a header and a body that is there, in one write when both are small.
func (x *exchange) writeBytes(resp *api.Response, f framing, body []byte) (written int64, err error) {
	buf := x.c.Buffer(edge.SmallBuffer)
	defer x.c.Buffers.Put(buf)
	b := x.appendHead(buf.B, resp.Status, resp.Header, f)
	head := len(b)
	with := max(0, min(len(body), cap(b)-head))
	buf.B = append(b, body[:with]...)
	n, err := x.c.Out.Write(buf.B)
	if err == nil && with < len(body) {
		var m int
		m, err = x.c.Out.Write(body[with:])
		n += m
	}
	return int64(max(0, n-head)), err
}

// writeBodyTo writes a header and a body that writes itself. When that fails before anything was
// sent, the client gets a 500 instead; afterwards only the end of the connection can tell it.
func (x *exchange) writeBodyTo(resp *api.Response, f framing) (written int64, err error) {
	c, known := x.c, f.length >= 0
	w := &bodyWriter{
		collector: collector{dst: &c.Out, buf: c.Buffer(edge.LargeBuffer)},
		known:     known, left: f.length, chunked: f.chunked, urgent: !known && !resp.Ready,
	}
	defer func() { c.Buffers.Put(w.buf) }()
	if resp.Ready && (!known || f.length > edge.RecordSize) {
		c.Out.Gather(edge.WriteSlice)
		defer func() {
			if releaseErr := c.Out.Release(); err == nil {
				err = releaseErr
			}
		}()
	}
	w.buf.B = x.appendHead(w.buf.B, resp.Status, resp.Header, f)
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
		_, _ = x.writeBytes(failed, framing{length: int64(len(failed.Body)), close: true}, failed.Body)
		return 0, err
	case x.http10 && !w.known:
		c.Reset() // or it would look complete
	}
	return w.written, err
}

// appendHead writes a status line and header lines: those of the handler, unchanged and in order,
// except for those that belong to the connection.
func (x *exchange) appendHead(dst []byte, status int, header api.Header, f framing) []byte {
	proto := "HTTP/1.1 "
	if x.http10 {
		proto = "HTTP/1.0 "
	}
	dst = append(dst, proto...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, fasthttp.StatusMessage(status)...)
	dst = append(dst, "\r\n"...)
	date := false
	for i := range header {
		if !edge.IsFraming(header[i].Name, x.head) {
			dst = appendField(dst, header[i].Name, header[i].Value)
			date = date || strings.EqualFold(header[i].Name, "Date")
		}
	}
	if !date {
		dst = appendField(dst, "Date", x.c.Date())
	}
	switch {
	case f.chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case f.length >= 0:
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, f.length, 10)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case f.close:
		dst = append(dst, "Connection: close\r\n"...)
	case x.http10:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// appendField appends a header line, unless its name cannot be one.
func appendField(dst []byte, name, value string) []byte {
	if !httpguts.ValidHeaderFieldName(name) {
		return dst
	}
	dst = append(append(dst, name...), ": "...)
	return append(edge.AppendValue(dst, value), "\r\n"...)
}

// collector collects what is written in a buffer, and writes that when it is full.
type collector struct {
	dst io.Writer
	buf *edge.Buffer
	// sent is true if something left for the client, so that there is no way back.
	sent bool
	err  error
}

// add writes p. Pieces larger than the buffer leave as they are.
func (w *collector) add(p []byte) {
	for w.err == nil && len(p) > 0 {
		b := w.buf.B
		if len(b) == 0 && len(p) >= cap(b) {
			// Whole records; the rest joins what comes next.
			whole := len(p) - len(p)%edge.SmallBuffer
			_ = w.send(p[:whole])
			p = p[whole:]
			continue
		}
		n := min(len(p), cap(b)-len(b))
		w.buf.B = append(b, p[:n]...)
		if p = p[n:]; len(w.buf.B) == cap(b) {
			_ = w.flush()
		}
	}
}

func (w *collector) flush() error {
	if w.err != nil || len(w.buf.B) == 0 {
		return w.err
	}
	err := w.send(w.buf.B)
	w.buf.B = w.buf.B[:0]
	return err
}

func (w *collector) send(p []byte) error {
	w.sent = true
	_, w.err = w.dst.Write(p)
	return w.err
}

// bodyWriter is the writer for a BodyTo. Its buffer begins with the response header.
type bodyWriter struct {
	collector
	// left is how much may still be written, for a body of known length.
	left  int64
	known bool
	// chunked frames every Write as a chunk.
	chunked bool
	// urgent sends every Write at once.
	urgent bool
	// written counts body bytes.
	written int64
}

// Write implements io.Writer. Bodies of known length are collected into large
// writes; large pieces leave as they are.
func (w *bodyWriter) Write(p []byte) (int, error) {
	if w.err == nil && w.known && int64(len(p)) > w.left {
		w.err = edge.ErrTooLong
	}
	if w.err != nil || len(p) == 0 {
		return 0, w.err
	}
	w.written += int64(len(p))
	if w.known {
		w.left -= int64(len(p))
		w.add(p)
	} else {
		w.writePiece(p)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// writePiece sends a piece of a body of unknown length, as one chunk when chunked.
func (w *bodyWriter) writePiece(p []byte) {
	if w.chunked {
		if len(w.buf.B)+chunkOverhead > cap(w.buf.B) && w.flush() != nil {
			return
		}
		w.buf.B = appendChunkHead(w.buf.B, len(p))
	}
	if len(p)+len(w.buf.B)+chunkOverhead <= cap(w.buf.B) {
		w.buf.B = append(w.buf.B, p...)
	} else if w.flush() != nil || w.send(p) != nil {
		return
	}
	if w.chunked {
		w.buf.B = append(w.buf.B, "\r\n"...)
	}
	if w.urgent {
		_ = w.flush()
	}
}

// finish ends a body that was written without an error.
func (w *bodyWriter) finish() error {
	if w.err == nil && w.known && w.left > 0 {
		w.err = edge.ErrTooShort
	}
	if w.err == nil && w.chunked {
		w.buf.B = append(w.buf.B, lastChunk...)
	}
	return w.flush()
}

// chunkOverhead is room for the size line and the end of a chunk.
const chunkOverhead = 32

const lastChunk = "0\r\n\r\n"

func appendChunkHead(dst []byte, size int) []byte {
	return append(strconv.AppendInt(dst, int64(size), 16), "\r\n"...)
}
