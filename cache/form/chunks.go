package form

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
)

// chunkSize is the number of bytes of a body written at a time: small enough to stay in the
// processor's cache between the copy here and the encryption below, large enough to fill TLS
// records.
const chunkSize = 256 << 10

// A body holds its buffer, and the objects it refers to, for as long as its client reads. Once the
// buffers in use add up to chunkBudget, most of them belong to slow clients, and further bodies get
// buffers of smallChunk bytes.
const (
	chunkBudget = 128 * chunkSize
	smallChunk  = 16 << 10
)

// leastPiece is the size from which bytes are passed on in place rather than copied.
const leastPiece = 1 << 10

// chunks collects the bytes of a body. With a writer it writes them in chunks of the buffer's size;
// without one it keeps all of them in buf.
type chunks struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error // the first error of w; nothing is written after it

	// pieces is w if w implements api.PiecesWriter. list holds the pieces of its next call, listed
	// is their total size, and buf[:at] is already in the list.
	pieces     api.PiecesWriter
	list       [][]byte
	listed, at int
}

// chunksTo returns chunks that write to w through buf.
func chunksTo(w io.Writer, buf []byte) chunks {
	pieces, _ := w.(api.PiecesWriter)
	return chunks{w: w, buf: buf[:0], pieces: pieces}
}

// refer writes p without copying it if possible. p must never change.
func (c *chunks) refer(p []byte) {
	if c.pieces == nil || len(p) < leastPiece {
		c.write(p)
		return
	}
	c.seal()
	c.list = append(c.list, p)
	if c.listed += len(p); c.listed >= cap(c.buf) {
		c.flush()
	}
}

// seal appends the unlisted part of buf to the list.
func (c *chunks) seal() {
	if n := len(c.buf) - c.at; n > 0 {
		c.list = append(c.list, c.buf[c.at:])
		c.listed += n
		c.at = len(c.buf)
	}
}

func (c *chunks) write(p []byte) {
	if c.w == nil {
		c.buf = append(c.buf, p...)
		return
	}
	for len(p) > cap(c.buf)-len(c.buf) {
		if c.err != nil {
			return
		}
		if len(c.buf) == 0 && len(c.list) == 0 {
			// p is larger than the buffer: copying it gains nothing.
			n, err := c.w.Write(p)
			c.wrote(n, len(p), err)
			return
		}
		n := cap(c.buf) - len(c.buf)
		c.buf = append(c.buf, p[:n]...)
		p = p[n:]
		c.flush()
	}
	c.buf = append(c.buf, p...)
}

func (c *chunks) writeString(s string) {
	if c.w != nil && len(s) > cap(c.buf)-len(c.buf) {
		c.flush()
	}
	c.buf = append(c.buf, s...)
}

// append calls add to append about n bytes. If they exceed the buffer's capacity, add grows it.
func (c *chunks) append(n int, add func([]byte) []byte) {
	if c.w != nil && len(c.buf) > 0 && n > cap(c.buf)-len(c.buf) {
		c.flush()
	}
	c.buf = add(c.buf)
}

// flush writes the collected bytes.
func (c *chunks) flush() {
	switch {
	case c.err != nil:
	case len(c.list) > 0:
		c.seal()
		n, err := c.pieces.WritePieces(c.list)
		c.wrote(n, c.listed, err)
	case len(c.buf) > 0:
		n, err := c.w.Write(c.buf)
		c.wrote(n, len(c.buf), err)
	}
	clear(c.list)
	c.buf, c.list, c.listed, c.at = c.buf[:0], c.list[:0], 0, 0
}

// wrote records that w accepted n of size bytes.
func (c *chunks) wrote(n, size int, err error) {
	c.written += int64(n)
	if err == nil && n < size {
		err = io.ErrShortWrite
	}
	c.err = err
}

// buffers is a pool of buffers of chunkSize bytes or, when many are in use, of smallChunk bytes. It
// is safe for concurrent use.
type buffers struct {
	large, small sync.Pool
	held         atomic.Int64 // bytes in use
}

func newBuffers() *buffers {
	b := new(buffers)
	b.large.New, b.small.New = newBuffer(chunkSize), newBuffer(smallChunk)
	return b
}

func newBuffer(size int) func() any {
	return func() any {
		b := make([]byte, 0, size)
		return &b
	}
}

func (b *buffers) get() *[]byte {
	if b.held.Add(chunkSize) <= chunkBudget {
		return b.large.Get().(*[]byte)
	}
	b.held.Add(smallChunk - chunkSize)
	return b.small.Get().(*[]byte)
}

// put returns a buffer to its pool. The buffer must not have grown.
func (b *buffers) put(buf *[]byte) {
	b.held.Add(-int64(cap(*buf)))
	if cap(*buf) == chunkSize {
		b.large.Put(buf)
	} else {
		b.small.Put(buf)
	}
}
