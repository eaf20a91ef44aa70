package h1

import (
	"io"
	"strconv"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// beginFinal marks the begin of the final response.
func (x *exchange) beginFinal() {
	x.interim.Lock()
	x.final = true
	x.interim.Unlock()
}

// continue100 tells the client to send its body, unless it got an answer already.
func (x *exchange) continue100() error {
	x.interim.Lock()
	defer x.interim.Unlock()
	if x.final {
		return nil
	}
	_, err := io.WriteString(&x.c.Out, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// bodyWriter is what a BodyTo writes to. It begins with the response head in its
// buffer.
type bodyWriter struct {
	dst io.Writer
	buf *edge.Buffer
	// left is how much may still be written, for a body of known length.
	left  int64
	known bool
	// chunked frames every Write as a chunk.
	chunked bool
	// urgent sends every Write at once.
	urgent bool
	// sent says that something left for the client, so that there is no way back.
	sent bool
	// written counts body bytes.
	written int64
	err     error
}

// Write implements io.Writer. Bodies of known length are collected into large
// writes; large pieces go out as they are.
func (w *bodyWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !w.known {
		return w.writeNow(p)
	}
	if int64(len(p)) > w.left {
		w.err = edge.ErrTooLong
		return 0, w.err
	}
	w.left -= int64(len(p))
	w.written += int64(len(p))
	n := len(p)
	for len(p) > 0 {
		b := w.buf.B
		if len(b) == 0 && len(p) >= cap(b) {
			// Whole records; the rest joins what comes next.
			whole := len(p) - len(p)%edge.SmallBuffer
			if w.send(p[:whole]) != nil {
				return 0, w.err
			}
			p = p[whole:]
			continue
		}
		k := min(len(p), cap(b)-len(b))
		w.buf.B = append(b, p[:k]...)
		p = p[k:]
		if len(w.buf.B) == cap(b) && w.flush() != nil {
			return 0, w.err
		}
	}
	return n, nil
}

// writeNow sends a piece of a body of unknown length, as one chunk when chunked.
func (w *bodyWriter) writeNow(p []byte) (int, error) {
	w.written += int64(len(p))
	if w.chunked {
		if len(w.buf.B)+chunkOverhead > cap(w.buf.B) && w.flush() != nil {
			return 0, w.err
		}
		w.buf.B = appendChunkHead(w.buf.B, len(p))
	}
	if len(p)+len(w.buf.B)+chunkOverhead <= cap(w.buf.B) {
		w.buf.B = append(w.buf.B, p...)
	} else if w.flush() != nil || w.send(p) != nil {
		return 0, w.err
	}
	if w.chunked {
		w.buf.B = append(w.buf.B, "\r\n"...)
	}
	if w.urgent && w.flush() != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *bodyWriter) flush() error {
	if w.err != nil || len(w.buf.B) == 0 {
		return w.err
	}
	err := w.send(w.buf.B)
	w.buf.B = w.buf.B[:0]
	return err
}

func (w *bodyWriter) send(p []byte) error {
	w.sent = true
	_, w.err = w.dst.Write(p)
	return w.err
}

// finish ends a body that was written without an error.
func (w *bodyWriter) finish() error {
	if w.err == nil && w.known && w.left > 0 {
		w.err = edge.ErrTooShort
	}
	if w.err == nil && w.chunked {
		w.buf.B = append(w.buf.B, "0\r\n\r\n"...)
	}
	return w.flush()
}

func appendChunkHead(dst []byte, size int) []byte {
	dst = strconv.AppendInt(dst, int64(size), 16)
	return append(dst, "\r\n"...)
}
