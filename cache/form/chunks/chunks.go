// Package chunks writes bodies in chunks: it copies small pieces into a reused buffer and passes
// large ones on in place. Package form uses it. It imports nothing of the cache.
package chunks

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Size is the number of bytes of a body written at a time: small enough to stay in the processor's
// cache between the copy here and the encryption below, large enough to fill TLS records.
const Size = 256 << 10

// A body holds its buffer, and the objects it refers to, for as long as its client reads. Once the
// buffers in use add up to budget, most of them belong to slow clients, and further bodies get
// buffers of Small bytes. Single objects, which are passed on in place, always get tiny ones.
const (
	budget = 128 * Size
	Small  = 16 << 10
	tiny   = 512
)

// leastPiece is the size from which bytes are passed on in place rather than copied.
const leastPiece = 1 << 10

// Writer collects the bytes of a body. With a writer it writes them in chunks of the buffer's size;
// without one it keeps all of them in Buf.
type Writer struct {
	w       io.Writer
	Buf     []byte
	Written int64
	Err     error  // the first error of w; nothing is written after it
	own     []byte // the buffer that the Pool gave it, from which Buf may have grown

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
	if c.makeRoom(len(p)); c.w != nil && len(p) > cap(c.Buf) {
		// Copying it gains nothing.
		if c.Err == nil {
			n, err := c.w.Write(p)
			c.wrote(n, len(p), err)
		}
		return
	}
	c.Buf = append(c.Buf, p...)
}

// CopyString writes s.
func (c *Writer) CopyString(s string) {
	c.makeRoom(len(s))
	c.Buf = append(c.Buf, s...)
}

// makeRoom writes the collected bytes if n more do not fit the buffer.
func (c *Writer) makeRoom(n int) {
	if c.w != nil && n > cap(c.Buf)-len(c.Buf) {
		c.Flush()
	}
}

// Append calls add to append about n bytes. If they exceed the buffer's capacity, add grows it.
func (c *Writer) Append(n int, add func([]byte) []byte) {
	c.makeRoom(n)
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

// Pool is a pool of Writers. It is safe for concurrent use.
type Pool struct {
	large, small, tiny sync.Pool
	held               atomic.Int64 // bytes of large and small buffers in use
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	p := new(Pool)
	p.large.New, p.small.New, p.tiny.New = newWriter(Size), newWriter(Small), newWriter(tiny)
	return p
}

func newWriter(size int) func() any {
	return func() any { return &Writer{own: make([]byte, 0, size)} }
}

// Get returns a Writer to w. If it is for many objects, its buffer has Size bytes or, when many are
// in use, Small bytes.
func (p *Pool) Get(w io.Writer, many bool) *Writer {
	pool := &p.tiny
	if many {
		if pool = &p.large; p.held.Add(Size) > budget {
			pool = &p.small
			p.held.Add(Small - Size)
		}
	}
	c := pool.Get().(*Writer)
	own, list := c.own, c.list
	*c = To(w, own)
	c.own, c.list = own, list
	return c
}

// Put returns a Writer to the pool.
func (p *Pool) Put(c *Writer) {
	clear(c.list)
	*c = Writer{own: c.own, list: c.list[:0]} // w can be a connection
	switch size := cap(c.own); size {
	case tiny:
		p.tiny.Put(c)
	case Small:
		p.held.Add(-Small)
		p.small.Put(c)
	default:
		p.held.Add(-Size)
		p.large.Put(c)
	}
}
