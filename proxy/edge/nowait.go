package edge

import "syscall"

// nowait writes to a socket without waiting for its client. What the socket does not
// take is kept, for who may wait.
type nowait struct {
	Raw syscall.RawConn // nil where writes cannot be tried
	try func(fd uintptr) bool

	// p is what is tried, n how much of it was taken.
	p   []byte
	n   int
	err error

	// rest is what was not taken. Everything that follows goes behind it.
	rest []byte
}

// init prepares for a socket, nil if there is none.
func (w *nowait) init(raw syscall.RawConn) {
	if raw != nil && canWriteNow {
		w.Raw, w.try = raw, w.tryWrite
	}
}

// write writes p, or keeps what is not taken at once.
func (w *nowait) write(p []byte) error {
	if len(w.rest) == 0 {
		w.p, w.n, w.err = p, 0, nil
		err := w.Raw.Write(w.try)
		w.p = nil
		if err == nil {
			err = w.err
		}
		if err != nil {
			return err
		}
		p = p[w.n:]
	}
	w.rest = append(w.rest, p...)
	return nil
}

// tryWrite writes as much as fd takes. It never asks to be called again.
func (w *nowait) tryWrite(fd uintptr) (done bool) {
	for w.n < len(w.p) {
		n, again, err := writeNow(int(fd), w.p[w.n:])
		if w.n += n; err != nil || again {
			w.err = err
			break
		}
	}
	return true
}
