package inprocess

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// wholeLimit is up to what size a response that is not flushed is given to the
// client in one piece, with its length.
const wholeLimit = 32 << 10

// wholeMax is the most bytes of a response that Whole collects.
const wholeMax = 64 << 20

// sniffed is how much of a body http.DetectContentType looks at.
const sniffed = 512

// errTooLarge is the error of a response larger than wholeMax.
var errTooLarge = fmt.Errorf("in-process connection: the response is larger than %d bytes", wholeMax)

// errOver is the error of writes after the handler has returned.
var errOver = errors.New("in-process connection: the handler has returned")

// responseWriter is what the handler writes to. As net/http's, it may be used by
// one goroutine at a time.
//
//	collecting --handler returned--> answered, whole
//	    |  \------flushed, large---> streaming --handler returned--> over
//	    \---------Hijack-----------> hijacked
type responseWriter struct {
	x      *call
	header http.Header
	head   bool // of a HEAD request: no body

	status   int         // 0 before WriteHeader
	sent     http.Header // as header was then
	declared int64       // Content-Length as the handler set it, -1 without
	offered  int64       // body bytes that the handler wrote
	written  int64       // of these, those that were taken
	begun    []byte      // what is collected
	stream   *pipe       // once streaming
	hijacked bool
	tooLarge bool
	failed   bool        // a write to stream failed: the body has a gap
	over     atomic.Bool // the handler has returned
}

var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ http.Flusher        = (*responseWriter)(nil)
	_ http.Hijacker       = (*responseWriter)(nil)
	_ io.StringWriter     = (*responseWriter)(nil)
	//lint:ignore SA1019 k8s.io/apiserver wraps only writers that have it.
	_ http.CloseNotifier = (*responseWriter)(nil)
)

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses but 101 go
// nowhere.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case w.hijacked || w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols:
		return
	}
	w.status = status
	w.sent = w.header.Clone() // what is set afterwards does not count
	if text := w.sent.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			w.declared = n
		} else {
			w.sent.Del("Content-Length")
		}
	}
}

// bodyless reports whether the response cannot have a body.
func (w *responseWriter) bodyless() bool {
	return w.status < 200 || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write implements io.Writer.
func (w *responseWriter) Write(p []byte) (int, error) {
	switch {
	case w.hijacked:
		return 0, http.ErrHijacked
	case w.over.Load():
		return 0, errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case w.bodyless():
		return 0, http.ErrBodyNotAllowed
	}
	if w.x.whole && w.offered+int64(len(p)) > wholeMax {
		w.tooLarge = true
		return 0, errTooLarge
	}
	w.offered += int64(len(p))
	if w.declared >= 0 && w.offered > w.declared {
		return 0, http.ErrContentLength
	}
	w.written = w.offered
	if w.head {
		if w.begun == nil {
			w.begun = bytes.Clone(p[:min(len(p), sniffed)])
		}
		return len(p), nil
	}
	if w.stream == nil {
		if w.x.whole || len(w.begun)+len(p) <= wholeLimit {
			w.begun = append(w.begun, p...)
			return len(p), nil
		}
		w.begin(p)
	}
	n, err := w.stream.write(p, false)
	w.failed = w.failed || err != nil
	return n, err
}

// WriteString implements io.StringWriter.
func (w *responseWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *responseWriter) FlushError() error {
	switch {
	case w.hijacked:
		return http.ErrHijacked
	case w.over.Load():
		return errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.x.whole:
		return nil
	case w.stream == nil:
		w.begin(nil)
		return nil
	}
	return w.stream.flush()
}

// begin sends the head while the body is to follow. next is what is written next.
func (w *responseWriter) begin(next []byte) {
	first := w.begun
	if len(first) == 0 {
		first = next
	}
	w.sniff(first)
	if w.head {
		w.begun = nil
	}
	w.stream = newPipe(w.begun)
	w.begun = nil
	if w.head || w.bodyless() {
		w.stream.endWrite(io.EOF)
	}
	b := &streamBody{pipe: w.stream, x: w.x}
	client := w.x.client.Context() // the handler's ends when that returns
	b.unlink = context.AfterFunc(client, func() { b.pipe.endRead(context.Cause(client)) })
	w.x.answer(w.response(b, w.declared), nil)
}

// sniff sets the Content-Type that the handler left open, as net/http does.
func (w *responseWriter) sniff(first []byte) {
	if len(first) == 0 || w.bodyless() || w.sent.Get("Content-Encoding") != "" {
		return
	}
	if _, ok := w.sent["Content-Type"]; !ok {
		w.sent.Set("Content-Type", http.DetectContentType(first))
	}
}

func (w *responseWriter) response(body io.ReadCloser, length int64) *http.Response {
	for name, values := range w.sent {
		if values == nil {
			delete(w.sent, name) // the handler's way to say that it wants none
		}
	}
	return &http.Response{
		StatusCode: w.status, Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: body, ContentLength: length, Request: w.x.client,
	}
}

// finish is called when the handler has returned.
func (w *responseWriter) finish() {
	w.over.Store(true)
	switch {
	case w.hijacked:
		return
	case w.tooLarge:
		w.x.answer(nil, errTooLarge)
		return
	case w.status == 0:
		w.WriteHeader(http.StatusOK)
	}
	short := w.declared >= 0 && w.written < w.declared && !w.head && !w.bodyless()
	if w.stream != nil {
		w.stream.endWrite(endOf(short || w.failed))
		return
	}
	w.sniff(w.begun)
	length := w.written
	if w.declared >= 0 {
		length = w.declared
	}
	if w.head && length > 0 {
		w.sent.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	var body io.ReadCloser = http.NoBody
	if len(w.begun) > 0 && !w.head || short {
		body = &wholeBody{*bytes.NewReader(w.begun), endOf(short)}
	}
	w.x.answer(w.response(body, length), nil)
}

// endOf returns the error at the end of a body.
func endOf(incomplete bool) error {
	if incomplete {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// abort breaks the response off.
func (w *responseWriter) abort(err error) {
	w.over.Store(true)
	switch {
	case w.hijacked:
		_ = w.x.hijacked.Close()
	case w.stream != nil:
		w.stream.endWrite(err)
	default:
		w.x.answer(nil, err)
	}
}

// Hijack implements http.Hijacker.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case w.over.Load(), w.x.whole, w.stream != nil, w.status != 0 && w.status != http.StatusSwitchingProtocols:
		return nil, nil, errors.New("in-process connection: it cannot be taken over")
	}
	w.hijacked = true
	client, server := newConns(w.x.client.RemoteAddr)
	w.x.hijacked = client
	w.x.unlink = context.AfterFunc(w.x.client.Context(), func() { _ = client.Close() })
	if w.status != 0 { // the head is the server's to write
		var head bytes.Buffer
		fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", w.status, http.StatusText(w.status))
		_ = w.sent.Write(&head)
		head.WriteString("\r\n")
		_, _ = server.Write(head.Bytes())
	}
	close(w.x.ready)
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

// CloseNotify implements http.CloseNotifier.
func (w *responseWriter) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.x.ctx, func() { gone <- true })
	return gone
}

// SetReadDeadline does nothing: the client's body has deadlines of its own. It is
// here for http.ResponseController.
func (w *responseWriter) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline bounds writes once the response has begun.
func (w *responseWriter) SetWriteDeadline(t time.Time) error {
	if w.stream != nil {
		w.stream.setDeadline(&w.stream.writer, t)
	}
	return nil
}

// EnableFullDuplex does nothing: it always is.
func (w *responseWriter) EnableFullDuplex() error { return nil }

// wholeBody is a body that was complete when the client got it.
type wholeBody struct {
	bytes.Reader
	end error
}

// Read implements io.Reader.
func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.end
	}
	return n, err
}

// WriteTo hides that of bytes.Reader, which does not know the end.
func (b *wholeBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.Reader.WriteTo(w)
	if err == nil && !errors.Is(b.end, io.EOF) {
		err = b.end
	}
	return n, err
}

// Close implements io.Closer.
func (b *wholeBody) Close() error { return nil }

// streamBody is a body that the handler is writing.
type streamBody struct {
	pipe   *pipe
	x      *call
	unlink func() bool
}

// Read implements io.Reader.
func (b *streamBody) Read(p []byte) (int, error) { return b.pipe.read(p) }

// Close implements io.Closer: the handler's context ends, and its writes fail.
func (b *streamBody) Close() error {
	b.unlink()
	b.pipe.endRead(errReaderGone) // who learns of the context's end finds this
	b.x.cancel()
	return nil
}
