package h1

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// drainLimit is how much of a body that nobody read is read to keep the
// connection, as in net/http.
const drainLimit = 256 << 10

// body is the body of a request. Reads come from one goroutine
// at a time, which need not be the one of the connection: an HTTP client sends a
// body from a goroutine of its own and may still do so when the response is there.
type body struct {
	x *exchange
	// length is the Content-Length, -1 for a chunked body.
	length int64

	// reading is held while the body is read, and guards what reads it.
	reading sync.Mutex
	req     *fasthttp.Request // pooled: given back by discard
	started bool

	// mu is held for moments, and guards how far reading is. It is taken last.
	mu     sync.Mutex
	read   int64
	err    error // final, io.EOF at the end
	sealed bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if err := b.ended(); err != nil || len(p) == 0 {
		return 0, err
	}
	return b.advance(p)
}

// SetReadDeadline bounds the reading of the whole body, see api.Request. It is for
// the goroutine that reads.
func (b *body) SetReadDeadline(t time.Time) error {
	b.x.c.In.Limit = t
	return nil
}

// ended is why nothing can be read any more, nil while something can.
func (b *body) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return edge.ErrBodyClosed
	}
	return b.err
}

// wasRead reports whether the body has been read to its end.
func (b *body) wasRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF //nolint:errorlint // Readers return it bare.
}

// advance reads on and notes how far it came. The caller holds reading.
func (b *body) advance(p []byte) (int, error) {
	n, err := b.readOn(p)
	b.mu.Lock()
	b.read += int64(n)
	if errors.Is(err, io.EOF) && b.length >= 0 && b.read < b.length {
		err = io.ErrUnexpectedEOF // fasthttp takes a lost client for the end of the body
	}
	b.err = err
	b.mu.Unlock()
	if err == io.EOF { //nolint:errorlint // Readers return it bare.
		b.x.ctx.watch()
	}
	return n, err
}

// readOn reads from the connection. The caller holds reading.
func (b *body) readOn(p []byte) (int, error) {
	if !b.started {
		b.started = true
		if b.x.expects {
			if err := b.x.continue100(); err != nil {
				return 0, err
			}
		}
		// The limit of 0 bytes is that of what is read ahead.
		if err := b.req.ContinueReadBodyStream(b.x.c.In.Buf, 0, false); err != nil {
			return 0, err
		}
	}
	stream := b.req.BodyStream()
	if stream == nil {
		return 0, io.EOF
	}
	return stream.Read(p)
}

// remaining returns how much the client may still send: 0 when the body was read, -1
// when that is not known, or when it waits for a 100 that will not come.
func (b *body) remaining() int64 {
	if !b.reading.TryLock() {
		return -1 // another goroutine is reading
	}
	defer b.reading.Unlock()
	return b.left()
}

// left is remaining for callers that hold reading.
func (b *body) left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == io.EOF: //nolint:errorlint // Readers return it bare.
		return 0
	case b.err != nil, b.length < 0, b.x.expects && !b.started:
		return -1
	}
	return b.length - b.read
}

// seal ends all reading by others, also a read that is under way.
func (b *body) seal() {
	if !b.reading.TryLock() {
		b.x.c.In.Interrupt()
		b.reading.Lock()
		_ = b.x.c.In.Resume()
	}
	defer b.reading.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
}

// discard reads what is left of a sealed body that is short enough, if the
// connection is to be kept, and gives back what reading took. It returns how much may
// still come, as remaining does.
func (b *body) discard(keep bool) (left int64) {
	// reading is not held: others who read find the body sealed, and are not to wait for the client.
	left = b.left()
	if keep && left > 0 {
		buf := b.x.c.Buffer(edge.SmallBuffer)
		defer b.x.c.Buffers.Put(buf)
		for left > 0 {
			_, _ = b.advance(buf.B[:cap(buf.B)])
			left = b.left()
		}
	}
	if b.req != nil {
		_ = b.req.CloseBodyStream()
		fasthttp.ReleaseRequest(b.req)
		b.req = nil
	}
	return left
}
