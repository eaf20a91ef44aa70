package h2

import (
	"fmt"
	"net/http"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// serve calls the handler and writes the response.
func (st *stream) serve() {
	defer st.contain()
	h := st.h
	var resp *api.Response
	if st.rejected != 0 {
		h.Metrics.Rejections.Count(edge.ReasonFor(st.rejected))
		resp = &api.Response{
			Status: st.rejected,
			Header: api.Header{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}},
			Body:   fmt.Appendf(nil, "%d %s", st.rejected, http.StatusText(st.rejected)),
		}
	} else {
		resp = st.agreed(h.Call(&st.ctx, &st.req))
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

// contain resets the stream when the transport itself panics.
func (st *stream) contain() {
	if e := recover(); e != nil {
		st.h.Panics.Recovered("connection", e)
		st.finish(&api.Response{}, 0, edge.ErrPanicked)
	}
}

// respond writes a response with a Body, a BodyTo or neither.
func (st *stream) respond(resp *api.Response) (written int64, err error) {
	withBody := edge.BodyAllowed(resp.Status) && !st.isHead
	head := responseHead{resp.Status, resp.Header, int64(len(resp.Body))}
	if resp.BodyTo != nil {
		head.length = max(resp.Length, -1)
		if withBody {
			return st.writeBodyTo(resp, head)
		}
	}
	if !withBody || head.length == 0 {
		return 0, st.sendHead(head, true)
	}
	if err := st.sendHead(head, false); err != nil {
		return 0, err
	}
	n, err := st.sendBytes(resp.Body, true, false)
	return int64(n), err
}

// writeBodyTo writes a header and a body that writes itself.
func (st *stream) writeBodyTo(resp *api.Response, head responseHead) (written int64, err error) {
	known, h := head.length >= 0, st.h
	if !resp.Ready || !known || head.length > edge.SmallBuffer {
		st.yield() // it may wait, for itself or for the client
	}
	w := &bodyWriter{st: st, head: head, known: known, left: head.length, urgent: !known && !resp.Ready}
	// Responses whose first byte may take long are not held back, so that the client receives the
	// header. Nothing is held back under memory pressure either, because the client might not read
	// for long.
	if w.urgent || h.Buffers.UnderPressure() {
		if err := w.begin(false); err != nil {
			return 0, err
		}
		if w.urgent {
			h.flush()
		}
	} else {
		w.first = h.Buffer(edge.SmallBuffer)
		defer w.release()
	}
	if _, err = h.WriteBody(resp.BodyTo, w); err == nil {
		err = w.finish()
	}
	if err != nil && !w.sent {
		failed := h.InternalError(edge.ErrBodyFailed)
		resp.Status = failed.Status
		_, _ = st.respond(failed)
		h.flush()
		return 0, err
	}
	return w.written, err
}

// bodyWriter is the writer for a BodyTo. It holds back the header and the first record until there
// is more data, so that a body that fails early can become a 500.
type bodyWriter struct {
	st   *stream
	head responseHead
	// first holds the data that is held back; nil once it is sent.
	first  *edge.Buffer
	known  bool
	left   int64
	urgent bool
	// sent is true if something was sent to the client, so that the status cannot change.
	sent    bool
	written int64
	err     error
}

func (w *bodyWriter) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	return w.WritePieces(one[:])
}

// WritePieces implements api.PiecesWriter: pieces are copied once, into TLS records.
func (w *bodyWriter) WritePieces(list [][]byte) (int, error) {
	s := newPieces(list)
	total := s.left
	if w.err == nil && w.known && int64(total) > w.left {
		w.err = edge.ErrTooLong
	}
	if w.err != nil || total == 0 {
		return 0, w.err
	}
	w.left -= int64(total)
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
	w.err = w.st.send(&s, false, w.urgent)
	w.written += int64(total - s.left)
	return total - s.left, w.err
}

// begin sends the data that was held back. With end, it ends the stream.
func (w *bodyWriter) begin(end bool) error {
	if w.sent {
		return nil
	}
	w.sent = true
	defer w.release()
	var first []byte
	if w.first != nil {
		first = w.first.B
	}
	if err := w.st.sendHead(w.head, end && len(first) == 0); err != nil || len(first) == 0 {
		return err
	}
	_, err := w.st.sendBytes(first, end, false)
	return err
}

// release frees the buffer of held-back data.
func (w *bodyWriter) release() {
	if w.first != nil {
		w.st.h.Buffers.Put(w.first)
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
