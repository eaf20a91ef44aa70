package h2

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// respond writes a response with a Body, a BodyTo or neither.
func (st *stream) respond(resp *api.Response) (written int64, err error) {
	withBody := edge.BodyAllowed(resp.Status) && !st.isHead
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

// sendHead queues the header of the response. end ends the stream with it.
func (st *stream) sendHead(status int, header api.Header, length int64, end bool) error {
	h := st.h
	buf := h.c.Buffer(edge.SmallBuffer)
	defer h.c.Buffers.Put(buf)
	buf.B = appendHeader(h.c, buf.B, status, header, length, st.isHead)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := st.unsendableLocked(); err != nil {
		return err
	}
	h.appendHeaders(st.id, buf.B, end)
	st.responded = true
	if end {
		st.endedLocked()
	}
	return nil
}

// continue100 tells the client to send its body, unless it got an answer already.
func (st *stream) continue100() {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if st.responded || st.unsendableLocked() != nil {
		return
	}
	h.appendHeaders(st.id, appendStatus(nil, 100), false)
	h.flushLocked(false)
}

// sendBytes queues p, or as much as the client takes.
func (st *stream) sendBytes(p []byte, end, flush bool) (int, error) {
	one := [1][]byte{p}
	s := pieces{list: one[:], left: len(p)}
	err := st.send(&s, end, flush)
	return len(p) - s.left, err
}

// writeBodyTo writes a head and a body that writes itself.
func (st *stream) writeBodyTo(resp *api.Response) (written int64, err error) {
	length := max(resp.Length, -1)
	if !resp.Ready || length < 0 || length > edge.SmallBuffer {
		st.yield() // it may wait, for itself or for the client
	}
	w := &bodyWriter{st: st, resp: resp, known: length >= 0, left: length, urgent: length < 0 && !resp.Ready}
	// Nothing is held back for a body whose first byte may take long, as the client should
	// know meanwhile, nor where much is held already: it may be until the client reads.
	buffers := &st.h.c.Buffers
	if w.urgent || buffers.Held.Load() > edge.LargeAllowed {
		if err := w.begin(false); err != nil {
			return 0, err
		}
		if w.urgent {
			st.flush()
		}
	} else {
		w.first = st.h.c.Buffer(edge.SmallBuffer)
		defer w.release()
	}
	if _, err = st.h.c.WriteBody(resp.BodyTo, w); err == nil {
		err = w.finish()
	}
	if err != nil && !w.sent {
		failed := st.h.c.InternalError(edge.ErrBodyFailed)
		resp.Status = failed.Status
		if st.sendHead(failed.Status, failed.Header, int64(len(failed.Body)), false) == nil {
			_, _ = st.sendBytes(failed.Body, true, true)
		}
		return 0, err
	}
	return w.written, err
}

// bodyWriter is what a BodyTo writes to. The head and what fits one record are held
// back until there is more, so that a body that fails early can be a 500.
type bodyWriter struct {
	st   *stream
	resp *api.Response
	// first is what is held back; nil once it is sent.
	first  *edge.Buffer
	known  bool
	left   int64
	urgent bool
	// sent says that something left for the client, so that there is no way back.
	sent    bool
	written int64
	err     error
}

// Write implements io.Writer.
func (w *bodyWriter) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	return w.WritePieces(one[:])
}

// WritePieces implements api.PiecesWriter: pieces are copied once, into TLS records.
func (w *bodyWriter) WritePieces(list [][]byte) (int, error) {
	total := 0
	for _, p := range list {
		total += len(p)
	}
	if w.err != nil || total == 0 {
		return 0, w.err
	}
	if w.known {
		if int64(total) > w.left {
			w.err = edge.ErrTooLong
			return 0, w.err
		}
		w.left -= int64(total)
	}
	if !w.sent && len(w.first.B)+total <= cap(w.first.B) {
		for _, p := range list {
			w.first.B = append(w.first.B, p...)
		}
		w.written += int64(total)
		return total, nil
	}
	if w.err = w.begin(false); w.err != nil {
		return 0, w.err
	}
	s := pieces{list: list, left: total}
	w.err = w.st.send(&s, false, w.urgent)
	n := total - s.left
	w.written += int64(n)
	return n, w.err
}

// begin sends what was held back. end ends the stream with it.
func (w *bodyWriter) begin(end bool) error {
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
		first = w.first.B
	}
	if err := w.st.sendHead(w.resp.Status, w.resp.Header, length, end && len(first) == 0); err != nil || len(first) == 0 {
		return err
	}
	_, err := w.st.sendBytes(first, end, false)
	return err
}

// release gives back what something was held back in.
func (w *bodyWriter) release() {
	if w.first != nil {
		w.st.h.c.Buffers.Put(w.first)
		w.first = nil
	}
}

// finish ends a body that was written without an error.
func (w *bodyWriter) finish() error {
	switch {
	case w.err != nil:
		return w.err
	case w.known && w.left > 0:
		w.err = edge.ErrTooShort
	case !w.sent:
		w.err = w.begin(true)
	default:
		_, w.err = w.st.sendBytes(nil, true, false)
	}
	return w.err
}
