// Package chunks writes bodies in chunks: it copies small pieces into a shared buffer and passes
// large ones on in place. Package form uses it. It imports nothing of the cache.
package chunks

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
)

// Size is the number of bytes of a body written at a time: small enough to stay in the
// processor's cache between the copy here and the encryption below, large enough to fill TLS
// records.
const Size = 256 << 10

// A body holds its buffer, and the objects it refers to, for as long as its client reads. Once the
// buffers in use add up to budget, most of them belong to slow clients, and further bodies get
// buffers of Small bytes.
const (
	budget = 128 * Size
	Small  = 16 << 10
)

// leastPiece is the size from which bytes are passed on in place rather than copied.
const leastPiece = 1 << 10

// Writer collects the bytes of a body. With a writer it writes them in chunks of the buffer's size;
// without one it keeps all of them in Buf.
type Writer struct {
	w       io.Writer
	Buf     []byte
	Written int64
	Err     error // the first error of w; nothing is written after it

	// pieces is w if w implements api.PiecesWriter. list holds the pieces of its next call, listed
	// is their total size, and Buf[:at] is already in the list.
	pieces     api.PiecesWriter
	list       [][]byte
	listed, at int
}

// To returns a Writer that writes to w through buf.
func To(w io.Writer, buf []byte) Writer {
	pieces, _ := w.(api.PiecesWriter)
	return Writer{w: w, Buf: buf[:0], pieces: pieces}
}

// Refer writes p without copying it if possible. p must never change.
func (c *Writer) Refer(p []byte) {
	if c.pieces == nil || len(p) < leastPiece {
		c.Copy(p)
		return
	}
	c.seal()
	c.list = append(c.list, p)
	if c.listed += len(p); c.listed >= cap(c.Buf) {
		c.Flush()
	}
}

// seal appends the unlisted part of buf to the list.
func (c *Writer) seal() {
	if n := len(c.Buf) - c.at; n > 0 {
		c.list = append(c.list, c.Buf[c.at:])
		c.listed += n
		c.at = len(c.Buf)
	}
}

// Copy writes p.
func (c *Writer) Copy(p []byte) {
	if c.w == nil {
		c.Buf = append(c.Buf, p...)
		return
	}
	for len(p) > cap(c.Buf)-len(c.Buf) {
		if c.Err != nil {
			return
		}
		if len(c.Buf) == 0 && len(c.list) == 0 {
			// p is larger than the buffer: copying it gains nothing.
			n, err := c.w.Write(p)
			c.wrote(n, len(p), err)
			return
		}
		n := cap(c.Buf) - len(c.Buf)
		c.Buf = append(c.Buf, p[:n]...)
		p = p[n:]
		c.Flush()
	}
	c.Buf = append(c.Buf, p...)
}

// CopyString writes s.
func (c *Writer) CopyString(s string) {
	if c.w != nil && len(s) > cap(c.Buf)-len(c.Buf) {
		c.Flush()
	}
	c.Buf = append(c.Buf, s...)
}

// Append calls add to append about n bytes. If they exceed the buffer's capacity, add grows it.
func (c *Writer) Append(n int, add func([]byte) []byte) {
	if c.w != nil && len(c.Buf) > 0 && n > cap(c.Buf)-len(c.Buf) {
		c.Flush()
	}
	c.Buf = add(c.Buf)
}

// Flush writes the collected bytes.
func (c *Writer) Flush() {
	switch {
	case c.Err != nil:
	case len(c.list) > 0:
		c.seal()
		n, err := c.pieces.WritePieces(c.list)
		c.wrote(n, c.listed, err)
	case len(c.Buf) > 0:
		n, err := c.w.Write(c.Buf)
		c.wrote(n, len(c.Buf), err)
	}
	clear(c.list)
	c.Buf, c.list, c.listed, c.at = c.Buf[:0], c.list[:0], 0, 0
}

// wrote records that w accepted n of size bytes.
func (c *Writer) wrote(n, size int, err error) {
	c.Written += int64(n)
	if err == nil && n < size {
		err = io.ErrShortWrite
	}
	c.Err = err
}

// Buffers is a pool of buffers of Size bytes or, when many are in use, of Small bytes. It
// is safe for concurrent use.
type Buffers struct {
	large, small sync.Pool
	held         atomic.Int64 // bytes in use
}

// NewBuffers returns an empty pool.
func NewBuffers() *Buffers {
	b := new(Buffers)
	b.large.New, b.small.New = newBuffer(Size), newBuffer(Small)
	return b
}

func newBuffer(size int) func() any {
	return func() any {
		b := make([]byte, 0, size)
		return &b
	}
}

// Get returns an empty buffer.
func (b *Buffers) Get() *[]byte {
	if b.held.Add(Size) <= budget {
		return b.large.Get().(*[]byte)
	}
	b.held.Add(Small - Size)
	return b.small.Get().(*[]byte)
}

// Put returns a buffer to its pool. The buffer must not have grown.
func (b *Buffers) Put(buf *[]byte) {
	b.held.Add(-int64(cap(*buf)))
	if cap(*buf) == Size {
		b.large.Put(buf)
	} else {
		b.small.Put(buf)
	}
}
