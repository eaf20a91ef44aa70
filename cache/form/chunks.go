package form

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
)

// chunkSize is how many bytes a body is written in at a time: few enough to stay
// in the processor's cache between the copy here and the encryption below, many
// enough to fill TLS records.
const chunkSize = 256 << 10

// Bodies hold their buffers for as long as their clients take to read, and what they refer
// to. Where chunkBudget is held already, most of them wait, and more get buffers of
// smallChunk.
const (
	chunkBudget = 128 * chunkSize
	smallChunk  = 16 << 10
)

// leastPiece is the size from which on bytes are handed on where they are rather than
// copied.
const leastPiece = 1 << 10

// chunks gathers the bytes of a body. With a writer it writes them there in
// chunks of the size of its buffer; without one it keeps them all in buf.
type chunks struct {
	w       io.Writer
	buf     []byte
	written int64
	err     error // of w; nothing is written after it

	// pieces is w, if it is one. list is what it is to be given, listed bytes; of buf
	// what is before at is in it.
	pieces     api.PiecesWriter
	list       [][]byte
	listed, at int
}

// chunksTo writes to w by way of buf.
func chunksTo(w io.Writer, buf []byte) chunks {
	pieces, _ := w.(api.PiecesWriter)
	return chunks{w: w, buf: buf[:0], pieces: pieces}
}

// refer is write for bytes that never change: they need not be copied.
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

// seal puts what is in buf on the list.
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
			// Larger than the buffer: no use in copying it.
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

// append lets add append about n bytes. More than the buffer holds make it grow.
func (c *chunks) append(n int, add func([]byte) []byte) {
	if c.w != nil && len(c.buf) > 0 && n > cap(c.buf)-len(c.buf) {
		c.flush()
	}
	c.buf = add(c.buf)
}

// flush writes what is gathered.
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

// wrote takes into account that w took n of size bytes.
func (c *chunks) wrote(n, size int, err error) {
	c.written += int64(n)
	if err == nil && n < size {
		err = io.ErrShortWrite
	}
	c.err = err
}

// buffers are buffers for reuse, of chunkSize or, where many are in use, of smallChunk. It is
// safe for concurrent use.
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

// put takes a buffer back; it must not be one that has grown.
func (b *buffers) put(buf *[]byte) {
	b.held.Add(-int64(cap(*buf)))
	if cap(*buf) == chunkSize {
		b.large.Put(buf)
	} else {
		b.small.Put(buf)
	}
}
