package edge

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// smallHead is the size of the buffer in which most requests fit: client-go's
// have about 500 bytes, with a service account's token about 1,500.
const smallHead = 4096

var (
	errInterrupted = errors.New("the read was interrupted")
	errWouldBlock  = errors.New("nothing to read yet")
)

// readers are a server's pools of read buffers, which are in use only while a
// request is under way.
type readers struct{ small, large sync.Pool }

func (r *readers) get(src *input, size int) *bufio.Reader {
	pool := &r.small
	if size > smallHead {
		pool = &r.large
	}
	if br, ok := pool.Get().(*bufio.Reader); ok {
		br.Reset(src)
		return br
	}
	return bufio.NewReaderSize(src, size)
}

func (r *readers) put(br *bufio.Reader) {
	br.Reset(nil)
	if br.Size() > smallHead {
		r.large.Put(br)
	} else {
		r.small.Put(br)
	}
}

// How the read deadline is kept while reading.
type readMode uint8

const (
	readWait readMode = iota // as set: waiting for a request, or for the client to leave
	readHead                 // one deadline for the whole head, set at the second read
	readBody                 // pushed ahead while bytes come
)

// input is the reading side of a connection. It holds a buffer only
// from a request's first byte to its last, so that an idle connection has none.
// Its methods are for the owner of the connection, but interrupt, which is for
// anyone.
type input struct {
	c  *conn
	nc net.Conn
	br *bufio.Reader
	// ahead is read before the connection: bytes that were taken from it already.
	ahead []byte
	// first is where a read waits that cannot wait without a buffer; taken says that
	// its byte is the only one that was read of the record it came in.
	first [1]byte
	taken bool
	// err is the connection's last error, to be told apart from a parser's.
	err      error
	mode     readMode
	headDone bool // the head's deadline is set
	// limit is when the whole body must be there, zero for no such limit.
	limit time.Time

	// raw lets a plaintext connection wait for its first byte without a buffer.
	raw    syscall.RawConn
	fill   func(fd uintptr) bool
	direct bool // while fill reads, from fd
	fd     int

	// mu guards what follows, so that an interrupt is not lost to a deadline that is
	// set at the same moment.
	mu       sync.Mutex
	cut      bool
	deadline time.Time
}

func (in *input) init(c *conn) {
	in.c, in.nc = c, c.nc
	raw := socketOf(c.raw)
	if raw != nil && c.nc == c.raw {
		in.initRaw(raw)
	}
}

// socketOf gives access to the descriptor of a socket, nil if nc is none.
func socketOf(nc net.Conn) syscall.RawConn {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Read implements io.Reader for the bufio.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.direct {
		return readNow(in.fd, p)
	}
	n := copy(p, in.ahead)
	in.ahead = in.ahead[n:]
	switch {
	case n > 0 && !in.taken:
		return n, nil
	case in.taken && n < len(p):
		// The rest of the TLS record is decrypted already.
		in.taken = false
	default:
		if err := in.arm(); err != nil {
			return n, err
		}
	}
	m, err := in.nc.Read(p[n:])
	if err != nil {
		in.err = err
	}
	return n + m, err
}

// wait blocks until a request begins, the connection ends or the idle timeout
// passes, and holds no buffer meanwhile. ok says that br has a byte.
func (in *input) wait() (ok bool) { return in.waitFor(in.c.srv.o.IdleTimeout) }

// waitFor is wait with another timeout.
func (in *input) waitFor(timeout time.Duration) (ok bool) {
	in.mode, in.headDone, in.err, in.limit = readWait, false, nil, time.Time{}
	if in.br != nil {
		if in.br.Buffered() > 0 {
			return true
		}
		in.release()
	}
	if in.err = in.keep(time.Now(), timeout); in.err != nil {
		return false
	}
	return in.waitRead()
}

// hasPreface says whether what begins is HTTP/2's preface, and no method.
func (in *input) hasPreface() bool {
	const start = "PRI"
	in.mode = readHead
	for n := 1; n <= len(start); n++ {
		b, err := in.br.Peek(n)
		if err != nil || string(b) != start[:n] {
			return false
		}
	}
	return true
}

// waitRead blocks until there is a byte, and no longer than the deadline.
func (in *input) waitRead() (ok bool) {
	if in.raw != nil {
		if err := in.raw.Read(in.fill); err != nil || in.br == nil {
			in.err = err
			return false
		}
		return in.br.Buffered() > 0
	}
	n, err := in.nc.Read(in.first[:])
	if n == 0 || err != nil {
		in.err = err
		return false
	}
	in.ahead, in.taken = in.first[:n], true
	in.acquire()
	return true
}

// tryFill reads what is there into a pooled buffer. It returns false when that is
// nothing, to be called again when there is something.
func (in *input) tryFill(fd uintptr) (done bool) {
	br := in.c.srv.readers.get(in, smallHead)
	in.direct, in.fd = true, int(fd)
	_, err := br.Peek(1)
	in.direct = false
	if errors.Is(err, errWouldBlock) {
		in.c.srv.readers.put(br)
		return false
	}
	in.br, in.err = br, err
	return true
}

// acquire makes sure that there is a buffer.
func (in *input) acquire() {
	if in.br == nil {
		in.br = in.c.srv.readers.get(in, smallHead)
	}
}

// grow exchanges the buffer for a large one with the same content.
func (in *input) grow(size int) {
	small := in.br
	content, _ := small.Peek(small.Buffered())
	in.ahead = content
	in.br = in.c.srv.readers.get(in, size)
	_, _ = in.br.Peek(len(content)) // one Read, which copies it
	in.ahead = nil
	in.c.srv.readers.put(small)
}

// release gives the buffer back, with whatever is in it.
func (in *input) release() {
	if in.br != nil {
		in.c.srv.readers.put(in.br)
		in.br = nil
	}
}

// releaseEmpty gives the buffer back unless it holds the next request.
func (in *input) releaseEmpty() {
	if in.br != nil && in.br.Buffered() == 0 {
		in.release()
	}
}

// arm sets the deadline that the mode asks for.
func (in *input) arm() error {
	switch in.mode {
	case readHead:
		if !in.headDone {
			in.headDone = true
			return in.set(time.Now().Add(in.c.srv.o.ReadHeaderTimeout))
		}
	case readBody:
		now, idle := time.Now(), in.c.srv.o.BodyIdleTimeout
		if !in.limit.IsZero() && in.limit.Sub(now) < idle {
			return in.set(in.limit)
		}
		return in.keep(now, idle)
	case readWait:
	}
	return nil
}

// keep pushes the deadline ahead so that between three quarters and all of
// timeout is left: setting it costs more than looking at the clock.
func (in *input) keep(now time.Time, timeout time.Duration) error {
	in.mu.Lock()
	left := in.deadline.Sub(now)
	in.mu.Unlock()
	if left <= timeout && left >= timeout-timeout/4 {
		return nil
	}
	return in.set(now.Add(timeout))
}

// set sets the read deadline, unless an interrupt came first.
func (in *input) set(t time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cut {
		return errInterrupted
	}
	in.deadline = t
	return in.nc.SetReadDeadline(t)
}

// interrupt makes a read of another goroutine end, and all later ones until
// resume. It does not block.
func (in *input) interrupt() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cut = true
	_ = in.nc.SetReadDeadline(time.Unix(1, 0))
}

// resume undoes an interrupt and every deadline.
func (in *input) resume() error {
	in.mu.Lock()
	in.cut = false
	in.mu.Unlock()
	return in.set(time.Time{})
}

// interrupted says whether a read's error came from interrupt.
func interrupted(err error) bool {
	var timeout net.Error
	return errors.Is(err, errInterrupted) || errors.As(err, &timeout) && timeout.Timeout()
}
