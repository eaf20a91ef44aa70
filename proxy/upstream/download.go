package upstream

import (
	"io"
	"sync"

	"github.com/kubeweir/kubeweir/internal/api"
)

// copyBuffer is the size of the pieces in which larger bodies are passed on.
const copyBuffer = 32 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }} // *[]byte

// download responds with a body that is passed on as it comes, after the n bytes in buf that were
// read of it.
func (x *forwarding) download(out *api.Response, body io.Reader, buf *[]byte, n int) {
	out.BodyTo, out.Length = &download{x, body, buf, n}, x.resp.ContentLength
	out.Done = func(int64, error) { x.end() }
}

// download passes a body on.
type download struct {
	x    *forwarding
	body io.Reader
	buf  *[]byte // nil: none yet
	n    int     // bytes in it to begin with
}

// WriteTo implements io.WriterTo. An error means that the response is not complete, whichever side
// broke it off.
func (d *download) WriteTo(w io.Writer) (written int64, err error) {
	buf, n := d.buf, d.n
	if buf == nil {
		buf = buffers.Get().(*[]byte)
	}
	d.buf, d.n = nil, 0
	defer buffers.Put(buf)
	var readErr error
	for {
		if n > 0 {
			m, err := w.Write((*buf)[:n])
			written += int64(m)
			if err != nil {
				return written, err
			}
		}
		switch {
		case readErr == io.EOF: // Readers return it bare.
			return written, nil
		case readErr != nil:
			return written, d.x.broke(readErr)
		}
		n, readErr = d.body.Read(*buf)
	}
}

// fill reads until buf is full. Unlike io.ReadFull's, its error distinguishes a body that ended
// from one that broke off.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}
