package h1

import (
	"io"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// chunkOverhead is room for the size line and the end of a chunk.
const chunkOverhead = 32

// frameWriter collects pieces in a buffer and writes them with as few writes as
// the buffer's size allows.
type frameWriter struct {
	dst io.Writer
	buf *edge.Buffer
	err error
}

func (w *frameWriter) add(p []byte) {
	for w.err == nil && len(p) > 0 {
		b := w.buf.B
		if len(b) == 0 && len(p) >= cap(b) {
			_, w.err = w.dst.Write(p)
			return
		}
		n := min(len(p), cap(b)-len(b))
		w.buf.B = append(b, p[:n]...)
		if p = p[n:]; len(w.buf.B) == cap(b) {
			w.flush()
		}
	}
}

func (w *frameWriter) addString(p string) {
	for w.err == nil && p != "" {
		b := w.buf.B
		n := min(len(p), cap(b)-len(b))
		w.buf.B = append(b, p[:n]...)
		if p = p[n:]; len(w.buf.B) == cap(b) {
			w.flush()
		}
	}
}

func (w *frameWriter) flush() {
	if w.err == nil && len(w.buf.B) > 0 {
		_, w.err = w.dst.Write(w.buf.B)
		w.buf.B = w.buf.B[:0]
	}
}
