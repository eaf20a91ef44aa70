package edge

import (
	"errors"
	"io"
	"sync"

	"github.com/valyala/fasthttp"
)

// drainLimit is how much of a body that nobody read is read to keep the
// connection, as in net/http.
const drainLimit = 256 << 10

var errBodyClosed = errors.New("the request is over, its body cannot be read any more")

// requestBody is the body of an HTTP/1.1 request. Reads come from one goroutine
// at a time, which need not be the one of the connection: an HTTP client sends a
// body from a goroutine of its own and may still do so when the answer is there.
type requestBody struct {
	x *exchange
	// length is the Content-Length, -1 for a chunked body.
	length int64

	// mu is held while reading and guards what follows.
	mu      sync.Mutex
	req     *fasthttp.Request // pooled: given back by discard
	started bool
	read    int64
	err     error // final, io.EOF at the end
	sealed  bool
	// onEOF is called once, when the body was read to its end.
	onEOF func()
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sealed:
		return 0, errBodyClosed
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	n, err := b.advance(p)
	if b.err == io.EOF && b.onEOF != nil { //nolint:errorlint // Readers return it bare.
		b.onEOF()
		b.onEOF = nil
	}
	return n, err
}

// advance reads on and notes how far it came. The caller holds mu.
func (b *requestBody) advance(p []byte) (int, error) {
	n, err := b.readLocked(p)
	b.read += int64(n)
	if errors.Is(err, io.EOF) && b.length >= 0 && b.read < b.length {
		err = io.ErrUnexpectedEOF // fasthttp takes a lost client for the end of the body
	}
	b.err = err
	return n, err
}

func (b *requestBody) readLocked(p []byte) (int, error) {
	if !b.started {
		b.started = true
		if b.x.expects {
			if err := b.x.c.out.continue100(); err != nil {
				return 0, err
			}
		}
		// The limit of 0 bytes is that of what is read ahead.
		if err := b.req.ContinueReadBodyStream(b.x.c.in.br, 0, false); err != nil {
			return 0, err
		}
	}
	stream := b.req.BodyStream()
	if stream == nil {
		return 0, io.EOF
	}
	return stream.Read(p)
}

// whenRead calls f when the body has been read to its end, at once if it has.
func (b *requestBody) whenRead(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == io.EOF { //nolint:errorlint // Readers return it bare.
		f()
		return
	}
	b.onEOF = f
}

// remaining says how much the client may still send: 0 when the body was read, -1
// when that is not known, or when it waits for a 100 that will not come.
func (b *requestBody) remaining() int64 {
	if !b.mu.TryLock() {
		return -1 // another goroutine is reading
	}
	defer b.mu.Unlock()
	return b.remainingLocked()
}

func (b *requestBody) remainingLocked() int64 {
	switch {
	case b.err == io.EOF: //nolint:errorlint // Readers return it bare.
		return 0
	case b.err != nil, b.length < 0, b.x.expects && !b.started:
		return -1
	}
	return b.length - b.read
}

// seal ends all reading by others, also a read that is under way.
func (b *requestBody) seal() {
	if !b.mu.TryLock() {
		b.x.c.in.interrupt()
		b.mu.Lock()
		_ = b.x.c.in.resume()
	}
	defer b.mu.Unlock()
	b.sealed, b.onEOF = true, nil
}

// discard reads what is left of a sealed body that is short enough, if the
// connection is to be kept, and gives back what reading took. It says how much may
// still come, as remaining does.
func (b *requestBody) discard(keep bool) (left int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if keep && b.remainingLocked() > 0 {
		buf := b.x.c.srv.buffers.get(smallBuffer)
		defer b.x.c.srv.buffers.put(buf)
		for b.err == nil && b.remainingLocked() > 0 {
			_, _ = b.advance(buf.b[:cap(buf.b)])
		}
	}
	left = b.remainingLocked()
	if b.req != nil {
		_ = b.req.CloseBodyStream()
		fasthttp.ReleaseRequest(b.req)
		b.req = nil
	}
	return left
}
