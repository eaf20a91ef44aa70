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
	errInterrupted       = errors.New("the read was interrupted")
	errWouldBlock  error = wouldBlock{}
)

// wouldBlock is an error after which TLS may be read again.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read yet" }
func (wouldBlock) Timeout() bool   { return false }
func (wouldBlock) Temporary() bool { return true }

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

	// raw lets a connection wait for its first byte without a buffer, or the stack that TLS
	// takes: of 8 KiB where it waits inside of it, of 4 once the garbage collector has seen it.
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
	switch {
	case raw == nil:
	case c.nc == c.raw:
		in.initRaw(raw, in.tryFill)
	case c.records != nil:
		in.initRaw(raw, in.tryRecord)
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
	case in.here():
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
func (in *input) wait() (ok bool) { return in.waitFor(in.c.o.IdleTimeout) }

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
		switch err := in.raw.Read(in.fill); {
		case err != nil:
			in.err = err
			return false
		case in.br == nil:
			return false
		}
		return len(in.ahead) > 0 || in.br.Buffered() > 0
	}
	return in.readFirst()
}

// readFirst reads a byte without a buffer, and gets one for what follows.
func (in *input) readFirst() (ok bool) {
	n, err := in.nc.Read(in.first[:])
	if n == 1 && errors.Is(err, errWouldBlock) {
		err = nil // TLS had a byte, and has looked for an alert behind it
	}
	if in.err = err; n == 0 || err != nil {
		return false
	}
	in.ahead, in.taken = in.first[:n], true
	in.acquire()
	return true
}

// tryRecord is tryFill with TLS: what is there may be less than a record, which TLS keeps.
func (in *input) tryRecord(fd uintptr) (done bool) {
	r := in.c.records
	r.direct, r.fd = true, int(fd)
	ok := in.readFirst()
	r.direct = false
	return ok || !errors.Is(in.err, errWouldBlock)
}

// tryFill reads what is there into a pooled buffer. It returns false when that is
// nothing, to be called again when there is something.
func (in *input) tryFill(fd uintptr) (done bool) {
	br := in.c.readers.get(in, smallHead)
	in.direct, in.fd = true, int(fd)
	_, err := br.Peek(1)
	in.direct = false
	if errors.Is(err, errWouldBlock) {
		in.c.readers.put(br)
		return false
	}
	in.br, in.err = br, err
	return true
}

// acquire makes sure that there is a buffer.
func (in *input) acquire() {
	if in.br == nil {
		in.br = in.c.readers.get(in, smallHead)
	}
}

// here says whether a read is to take nothing but what came with the last.
func (in *input) here() bool { return in.c.records != nil && in.c.records.here }

// fillHere reads the next TLS record into the empty buffer, if it came together with the last.
func (in *input) fillHere() bool {
	r := in.c.records
	if r == nil || !r.more {
		return false
	}
	r.here = true
	_, err := in.br.Peek(1)
	r.here = false
	if err != nil {
		in.err, r.more = nil, false // what is not for want of bytes, the next read meets again
	}
	return err == nil
}

// grow exchanges the buffer for a large one with the same content.
func (in *input) grow(size int) {
	small := in.br
	content, _ := small.Peek(small.Buffered())
	in.ahead = content
	in.br = in.c.readers.get(in, size)
	_, _ = in.br.Peek(len(content)) // one Read, which copies it
	in.ahead = nil
	in.c.readers.put(small)
}

// release gives the buffer back, with whatever is in it.
func (in *input) release() {
	if in.br != nil {
		in.c.readers.put(in.br)
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
			return in.set(time.Now().Add(in.c.o.ReadHeaderTimeout))
		}
	case readBody:
		now, idle := time.Now(), in.c.o.BodyIdleTimeout
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
