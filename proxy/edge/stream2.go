package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
)

// stream2 is one request over HTTP/2 with its stream and its response: one allocation,
// which the handler may keep. A long-running response has no goroutine: whoever has
// frames writes them.
type stream2 struct {
	h   *http2Conn
	id  uint32
	req api.Request
	ctx requestContext
	// body is what the client sends, nil if nothing.
	body *http2Body
	// account is whose the stream is, nil if the connection is theirs.
	account *account
	// turn is the connection's while the goroutine that reads it serves this request.
	turn uint64

	isHead, expects bool
	// tunnel says that the request is an extended CONNECT (RFC 8441).
	tunnel bool
	// refused is the status of an answer that the handler is not asked for, 0 for none.
	refused int

	// resp is a response with a Stream, once that was started.
	resp *api.Response

	// What follows is guarded by h.mu.

	window, received int64
	// gotEnd and sentEnd say who has ended their side.
	gotEnd, sentEnd bool
	// answered is set when the header was queued, served when the handler needs nothing
	// of the connection any more.
	answered, served bool
	// inLine and called say where the stream stands in the line: see queue.
	inLine, called bool
	err            error
	wake           chan struct{}
	// closing is set by Close and Abort: nothing more is written. ending is set when a
	// goroutine ends a long-running response.
	closing, aborted, ending bool
	// broken is set when frames could not be written, of which written bytes were.
	broken  bool
	written int64
	// duplex is set when the response is one, upgraded when it is an Upgrade, whose writes
	// wait until deadline.
	duplex, upgraded bool
	deadline         time.Time
	// late resets the stream when the response is complete and the request is not.
	late *time.Timer

	fields [inlineFields]api.HeaderField
}

func (st *stream2) init() {
	st.req.Header = st.fields[:0]
	st.ctx.base = st.h.c.srv.base
}

// serve answers the request.
func (st *stream2) serve() {
	defer st.contain()
	c := st.h.c
	var resp *api.Response
	if st.refused != 0 {
		c.srv.metrics.refusals.Count(refusalOf(st.refused))
		resp = &api.Response{
			Status: st.refused,
			Header: api.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}},
			Body:   fmt.Appendf(nil, "%d %s", st.refused, http.StatusText(st.refused)),
		}
	} else {
		resp = st.agreed(c.srv.call(&st.ctx, &st.req))
	}
	switch {
	case resp.Upgrade != nil:
		st.upgrade(resp)
		return
	case resp.Stream != nil:
		st.start(resp)
		return
	}
	written, err := st.respond(resp)
	st.finish(resp, written, err)
}

// readsHere says whether the goroutine that serves the stream reads the connection when
// it has done that, and sends what is queued then.
func (st *stream2) readsHere() bool { return st.turn != 0 && st.h.turn.Load() == st.turn }

// contain resets the stream when the transport itself panics.
func (st *stream2) contain() {
	e := recover()
	if e == nil {
		return
	}
	st.h.c.srv.panics.Recovered("connection", e)
	st.finish(&api.Response{}, 0, errPanicked)
}

// finish ends everything that belongs to the request.
func (st *stream2) finish(resp *api.Response, written int64, err error) {
	h := st.h
	unread := int64(0)
	if st.body != nil {
		unread = st.body.seal()
	}
	h.c.srv.buffers.accounts.release(st.account)
	st.account = nil
	st.ctx.end()
	h.mu.Lock()
	switch {
	case h.err != nil || h.streams[st.id] != st: // it is over already
	case !st.sentEnd:
		h.resetLocked(st, st.resetCode(), errStreamOver)
	case !st.gotEnd:
		st.late = time.AfterFunc(resetLate, st.stopUpload)
	}
	h.giveBackLocked(unread)
	if err == nil && st.err == nil && st.sentEnd {
		h.earned += effortAnswer
	}
	h.servedLocked(st)
	if err == nil {
		err = h.err
	}
	h.mu.Unlock()
	// Before the end of the answer leaves: who has it finds the request counted.
	h.c.srv.done(resp, written, err)
	if wantsClose(resp.Header) {
		h.shutdown()
	}
	if !st.readsHere() {
		st.flush()
	}
	h.drop()
}

// stopUpload tells the client that it need not send the rest of a body that nobody
// reads.
func (st *stream2) stopUpload() {
	h := st.h
	defer h.c.srv.panics.Contain("stream")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[st.id] == st && h.err == nil {
		h.resetLocked(st, http2.ErrCodeNo, errStreamOver)
		h.flushSoonLocked()
	}
}

// gotEndLocked notes that the client has ended its side.
func (h *http2Conn) gotEndLocked(st *stream2) {
	st.gotEnd = true
	if st.sentEnd {
		h.closeLocked(st)
	}
}

// resetLocked ends a stream and tells the client.
func (h *http2Conn) resetLocked(st *stream2, code http2.ErrCode, err error) {
	if h.streams[st.id] == st && h.err == nil {
		h.appendReset(st.id, code)
		if !st.gotEnd {
			h.cutOffLocked(st.id, st.received)
		}
	}
	h.endLocked(st, err)
}

// endLocked ends a stream.
func (h *http2Conn) endLocked(st *stream2, err error) {
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
}

// lost tells those who serve the stream that it is over. It does not block.
func (st *stream2) lost(err error) {
	h := st.h
	h.mu.Lock()
	if st.err == nil {
		st.err = err
	}
	st.wakeLocked()
	h.closeLocked(st)
	h.endSoonLocked(st)
	h.mu.Unlock()
	st.ctx.end()
	if st.body != nil {
		if errors.Is(err, errClientLeft) {
			err = io.ErrUnexpectedEOF
		}
		st.body.end(err)
	}
}

// sendHead queues the header of the response. end ends the stream with it.
func (st *stream2) sendHead(status int, header api.Header, length int64, end bool) error {
	h := st.h
	buf := h.c.getBuffer(smallBuffer)
	defer h.c.srv.buffers.put(buf)
	buf.b = h.c.appendHead2(buf.b, status, header, length, st.isHead)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := st.unsendableLocked(); err != nil {
		return err
	}
	h.appendHeaders(st.id, buf.b, end)
	st.answered = true
	if end {
		st.endedLocked()
	}
	return nil
}

// endedLocked notes that the response is complete.
func (st *stream2) endedLocked() {
	st.sentEnd = true
	st.h.servedLocked(st) // before the client learns of it and asks for more
	if st.gotEnd {
		st.h.closeLocked(st)
	}
}

// continue100 tells the client to send its body, unless it got an answer already.
func (st *stream2) continue100() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.answered || st.unsendableLocked() != nil {
		return
	}
	h.appendHeaders(st.id, appendStatus2(nil, 100), false)
	h.flushLocked(false)
}

// respond writes a response with a Body, a BodyTo or neither.
func (st *stream2) respond(resp *api.Response) (written int64, err error) {
	withBody := bodyAllowed(resp.Status) && !st.isHead
	if resp.BodyTo != nil && withBody {
		return st.writeBodyTo(resp)
	}
	length := int64(len(resp.Body))
	if resp.BodyTo != nil {
		length = max(resp.Length, -1)
	}
	if !withBody || length == 0 {
		return 0, st.sendHead(resp.Status, resp.Header, length, true)
	}
	if err := st.sendHead(resp.Status, resp.Header, length, false); err != nil {
		return 0, err
	}
	n, err := st.sendBytes(resp.Body, true, false)
	return int64(n), err
}

// sendBytes queues p, or as much as the client takes.
func (st *stream2) sendBytes(p []byte, end, flush bool) (int, error) {
	one := [1][]byte{p}
	s := pieces2{list: one[:], left: len(p)}
	err := st.send(&s, end, flush)
	return len(p) - s.left, err
}

// writeBodyTo writes a head and a body that writes itself.
func (st *stream2) writeBodyTo(resp *api.Response) (written int64, err error) {
	length := max(resp.Length, -1)
	if !resp.Ready || length < 0 || length > smallBuffer {
		st.stepAside() // it may wait, for itself or for the client
	}
	w := &bodyWriter2{st: st, resp: resp, known: length >= 0, left: length, urgent: length < 0 && !resp.Ready}
	// Nothing is held back for a body whose first byte may take long, as the client should
	// know meanwhile, nor where much is held already: it may be until the client reads.
	buffers := &st.h.c.srv.buffers
	if w.urgent || buffers.held.Load() > largeAllowed {
		if err := w.begin(false); err != nil {
			return 0, err
		}
		if w.urgent {
			st.flush()
		}
	} else {
		w.first = st.h.c.getBuffer(smallBuffer)
		defer w.release()
	}
	if _, err = st.h.c.srv.writeBody(resp.BodyTo, w); err == nil {
		err = w.finish()
	}
	if err != nil && !w.sent {
		failed := st.h.c.srv.internalError(errBodyFailed)
		resp.Status = failed.Status
		if st.sendHead(failed.Status, failed.Header, int64(len(failed.Body)), false) == nil {
			_, _ = st.sendBytes(failed.Body, true, true)
		}
		return 0, err
	}
	return w.written, err
}

// flush has what is queued leave, of all streams.
func (st *stream2) flush() {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	st.h.flushLocked(false)
}

// bodyWriter2 is what a BodyTo writes to. The head and what fits one record are held
// back until there is more, so that a body that fails early can be a 500.
type bodyWriter2 struct {
	st   *stream2
	resp *api.Response
	// first is what is held back; nil once it is sent.
	first  *buffer
	known  bool
	left   int64
	urgent bool
	// sent says that something left for the client, so that there is no way back.
	sent    bool
	written int64
	err     error
}

// Write implements io.Writer.
func (w *bodyWriter2) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	return w.WritePieces(one[:])
}

// WritePieces implements api.PiecesWriter: pieces are copied once, into TLS records.
func (w *bodyWriter2) WritePieces(pieces [][]byte) (int, error) {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	if w.err != nil || total == 0 {
		return 0, w.err
	}
	if w.known {
		if int64(total) > w.left {
			w.err = errTooLong
			return 0, w.err
		}
		w.left -= int64(total)
	}
	if !w.sent && len(w.first.b)+total <= cap(w.first.b) {
		for _, p := range pieces {
			w.first.b = append(w.first.b, p...)
		}
		w.written += int64(total)
		return total, nil
	}
	if w.err = w.begin(false); w.err != nil {
		return 0, w.err
	}
	s := pieces2{list: pieces, left: total}
	w.err = w.st.send(&s, false, w.urgent)
	n := total - s.left
	w.written += int64(n)
	return n, w.err
}

// begin sends what was held back. end ends the stream with it.
func (w *bodyWriter2) begin(end bool) error {
	if w.sent {
		return nil
	}
	w.sent = true
	defer w.release()
	length := int64(-1)
	if w.known {
		length = w.resp.Length
	}
	var first []byte
	if w.first != nil {
		first = w.first.b
	}
	if err := w.st.sendHead(w.resp.Status, w.resp.Header, length, end && len(first) == 0); err != nil || len(first) == 0 {
		return err
	}
	_, err := w.st.sendBytes(first, end, false)
	return err
}

// release gives back what something was held back in.
func (w *bodyWriter2) release() {
	if w.first != nil {
		w.st.h.c.srv.buffers.put(w.first)
		w.first = nil
	}
}

// finish ends a body that was written without an error.
func (w *bodyWriter2) finish() error {
	switch {
	case w.err != nil:
		return w.err
	case w.known && w.left > 0:
		w.err = errTooShort
	case !w.sent:
		w.err = w.begin(true)
	default:
		_, w.err = w.st.sendBytes(nil, true, false)
	}
	return w.err
}

// start sends the head of a long-running response and starts its stream.
func (st *stream2) start(resp *api.Response) {
	h := st.h
	status, header := resp.Status, resp.Header
	duplex, isDuplex := resp.Stream.(api.Duplex)
	if isDuplex {
		status, header = 200, agreement2(header)
	}
	err := st.sendHead(status, header, -1, st.isHead)
	if err != nil || st.isHead {
		h.c.srv.stopStream(resp.Stream)
		st.finish(resp, 0, err)
		return
	}
	if st.body != nil && !isDuplex {
		st.dropBody()
	}
	h.mu.Lock()
	st.duplex = isDuplex
	if !st.readsHere() {
		h.flushLocked(false)
	}
	st.turn = 0 // others write, too, from now on
	h.mu.Unlock()
	if err := h.c.srv.startStream(resp, st); err != nil {
		h.mu.Lock()
		h.resetLocked(st, st.resetCode(), err)
		h.flushSoonLocked()
		h.mu.Unlock()
	} else if isDuplex {
		st.body.passTo(duplex)
	}
	h.mu.Lock()
	st.resp = resp
	if st.closing || st.err != nil || h.err != nil || st.duplex && st.gotEnd {
		h.endSoonLocked(st)
	}
	h.mu.Unlock()
}

// dropBody lets go of a body that is not read any more.
func (st *stream2) dropBody() {
	unread := st.body.seal()
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if !st.gotEnd {
		st.received += unread
	}
	st.h.giveBackLocked(unread)
}

// endSoonLocked has a goroutine end a long-running response.
func (h *http2Conn) endSoonLocked(st *stream2) {
	if st.resp == nil || st.ending {
		return
	}
	st.ending = true
	h.c.srv.panics.Go(nil, "stream", st.end)
}

// end ends a long-running response.
func (st *stream2) end() {
	h, resp := st.h, st.resp
	if st.duplex {
		st.dropBody() // before the stream is stopped, which gets nothing then
	}
	h.c.srv.stopStream(resp.Stream)
	h.mu.Lock()
	err := st.err
	if err == nil && st.aborted {
		err = errAborted
	}
	written, broken := st.written, st.broken
	h.mu.Unlock()
	if err == nil {
		_, err = st.sendBytes(nil, true, true)
	}
	if errors.Is(err, errClientLeft) && !broken {
		err = nil // it is the client's to end a watch
	}
	st.finish(resp, written, err)
}

// WriteFrames implements api.StreamWriter: all frames in one DATA frame, or as
// many as their size takes.
func (st *stream2) WriteFrames(frames [][]byte) error {
	s := pieces2{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	size := s.left
	if err := st.writable(); err != nil || size == 0 {
		return err
	}
	c := st.h.c
	if c.short() && !c.out.writable() {
		c.srv.metrics.slow.Inc()
		st.h.fail(errSlow)
		return errSlow
	}
	err := st.send(&s, false, true)
	st.h.mu.Lock()
	st.written += int64(size - s.left)
	if err != nil {
		st.broken = true
		st.h.endSoonLocked(st)
	}
	st.h.mu.Unlock()
	return err
}

// QueueFrames implements api.SharedWriter.
func (st *stream2) QueueFrames(frames [][]byte) (taken bool) {
	s := pieces2{list: frames}
	for _, f := range frames {
		s.left += len(f)
	}
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing || st.unsendableLocked() != nil || len(h.inLine) > 0 || h.c.short() ||
		int64(s.left) > min(st.window, h.window) || s.left > h.roomLocked() {
		return false
	}
	st.written += int64(s.left)
	h.appendDataLocked(st, &s, false)
	return true
}

// Flush implements api.SharedWriter.
func (st *stream2) Flush() { st.flush() }

// writable is why no frames are taken any more.
func (st *stream2) writable() error {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing {
		return errStreamOver
	}
	return st.unsendableLocked()
}

// Close implements api.StreamWriter.
func (st *stream2) Close() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	st.closing = true
	h.endSoonLocked(st)
}

var errAborted = errors.New("the stream was aborted")

// Abort implements api.StreamWriter: the client gets a RST_STREAM.
func (st *stream2) Abort() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.closing {
		return
	}
	st.closing, st.aborted = true, true
	h.resetLocked(st, st.resetCode(), errAborted)
	h.flushSoonLocked()
	h.endSoonLocked(st)
}
