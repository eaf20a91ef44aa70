package edge

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// SmallHead is the size of the buffer in which most requests fit: client-go's
// have about 500 bytes, with a service account's token about 1,500.
const SmallHead = 4096

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

func (r *readers) get(src *Input, size int) *bufio.Reader {
	pool := &r.small
	if size > SmallHead {
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
	if br.Size() > SmallHead {
		r.large.Put(br)
	} else {
		r.small.Put(br)
	}
}

// How the read deadline is kept while reading.
type readMode uint8

const (
	ReadWait readMode = iota // as set: waiting for a request, or for the client to leave
	ReadHead                 // one deadline for the whole head, set at the second read
	ReadBody                 // pushed ahead while bytes come
)

// Input is the reading side of a connection. It holds a buffer only
// from a request's first byte to its last, so that an idle connection has none.
// Its methods are for the owner of the connection, but interrupt, which is for
// anyone.
type Input struct {
	c   *Conn
	nc  net.Conn
	Buf *bufio.Reader
	// ahead is read before the connection: bytes that were taken from it already.
	ahead []byte
	// first is where a read waits that cannot wait without a buffer; taken says that
	// its byte is the only one that was read of the record it came in.
	first [1]byte
	taken bool
	// Err is the connection's last error, to be told apart from a parser's.
	Err       error
	Mode      readMode
	HeadBegun bool // the head's deadline is set
	// Limit is when the whole body must be there, zero for no such limit.
	Limit time.Time

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

func (in *Input) init(c *Conn) {
	in.c, in.nc = c, c.NetConn
	raw := socketOf(c.raw)
	switch {
	case raw == nil:
	case c.NetConn == c.raw:
		in.initRaw(raw, in.tryFill)
	case c.Records != nil:
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
func (in *Input) Read(p []byte) (int, error) {
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
		in.Err = err
	}
	return n + m, err
}

// Wait blocks until a request begins, the connection ends or the idle timeout
// passes, and holds no buffer meanwhile. ok says that br has a byte.
func (in *Input) Wait() (ok bool) { return in.WaitFor(in.c.Options.IdleTimeout) }

// WaitFor is wait with another timeout.
func (in *Input) WaitFor(timeout time.Duration) (ok bool) {
	in.Mode, in.HeadBegun, in.Err, in.Limit = ReadWait, false, nil, time.Time{}
	if in.Buf != nil {
		if in.Buf.Buffered() > 0 {
			return true
		}
		in.Release()
	}
	if in.Err = in.keep(time.Now(), timeout); in.Err != nil {
		return false
	}
	return in.waitRead()
}

// hasPreface says whether what begins is HTTP/2's preface, and no method.
func (in *Input) hasPreface() bool {
	const start = "PRI"
	in.Mode = ReadHead
	for n := 1; n <= len(start); n++ {
		b, err := in.Buf.Peek(n)
		if err != nil || string(b) != start[:n] {
			return false
		}
	}
	return true
}

// waitRead blocks until there is a byte, and no longer than the deadline.
func (in *Input) waitRead() (ok bool) {
	if in.raw != nil {
		switch err := in.raw.Read(in.fill); {
		case err != nil:
			in.Err = err
			return false
		case in.Buf == nil:
			return false
		}
		return len(in.ahead) > 0 || in.Buf.Buffered() > 0
	}
	return in.readFirst()
}

// readFirst reads a byte without a buffer, and gets one for what follows.
func (in *Input) readFirst() (ok bool) {
	n, err := in.nc.Read(in.first[:])
	if n == 1 && errors.Is(err, errWouldBlock) {
		err = nil // TLS had a byte, and has looked for an alert behind it
	}
	if in.Err = err; n == 0 || err != nil {
		return false
	}
	in.ahead, in.taken = in.first[:n], true
	in.Acquire()
	return true
}

// tryRecord is tryFill with TLS: what is there may be less than a record, which TLS keeps.
func (in *Input) tryRecord(fd uintptr) (done bool) {
	r := in.c.Records
	r.direct, r.fd = true, int(fd)
	ok := in.readFirst()
	r.direct = false
	return ok || !errors.Is(in.Err, errWouldBlock)
}

// tryFill reads what is there into a pooled buffer. It returns false when that is
// nothing, to be called again when there is something.
func (in *Input) tryFill(fd uintptr) (done bool) {
	br := in.c.readers.get(in, SmallHead)
	in.direct, in.fd = true, int(fd)
	_, err := br.Peek(1)
	in.direct = false
	if errors.Is(err, errWouldBlock) {
		in.c.readers.put(br)
		return false
	}
	in.Buf, in.Err = br, err
	return true
}

// Acquire makes sure that there is a buffer.
func (in *Input) Acquire() {
	if in.Buf == nil {
		in.Buf = in.c.readers.get(in, SmallHead)
	}
}

// here says whether a read is to take nothing but what came with the last.
func (in *Input) here() bool { return in.c.Records != nil && in.c.Records.here }

// FillHere reads the next TLS record into the empty buffer, if it came together with the last.
func (in *Input) FillHere() bool {
	r := in.c.Records
	if r == nil || !r.more {
		return false
	}
	r.here = true
	_, err := in.Buf.Peek(1)
	r.here = false
	if err != nil {
		in.Err, r.more = nil, false // what is not for want of bytes, the next read meets again
	}
	return err == nil
}

// Grow exchanges the buffer for a large one with the same content.
func (in *Input) Grow(size int) {
	small := in.Buf
	content, _ := small.Peek(small.Buffered())
	in.ahead = content
	in.Buf = in.c.readers.get(in, size)
	_, _ = in.Buf.Peek(len(content)) // one Read, which copies it
	in.ahead = nil
	in.c.readers.put(small)
}

// Release gives the buffer back, with whatever is in it.
func (in *Input) Release() {
	if in.Buf != nil {
		in.c.readers.put(in.Buf)
		in.Buf = nil
	}
}

// ReleaseEmpty gives the buffer back unless it holds the next request.
func (in *Input) ReleaseEmpty() {
	if in.Buf != nil && in.Buf.Buffered() == 0 {
		in.Release()
	}
}

// arm sets the deadline that the mode asks for.
func (in *Input) arm() error {
	switch in.Mode {
	case ReadHead:
		if !in.HeadBegun {
			in.HeadBegun = true
			return in.set(time.Now().Add(in.c.Options.ReadHeaderTimeout))
		}
	case ReadBody:
		now, idle := time.Now(), in.c.Options.BodyIdleTimeout
		if !in.Limit.IsZero() && in.Limit.Sub(now) < idle {
			return in.set(in.Limit)
		}
		return in.keep(now, idle)
	case ReadWait:
	}
	return nil
}

// keep pushes the deadline ahead so that between three quarters and all of
// timeout is left: setting it costs more than looking at the clock.
func (in *Input) keep(now time.Time, timeout time.Duration) error {
	in.mu.Lock()
	left := in.deadline.Sub(now)
	in.mu.Unlock()
	if left <= timeout && left >= timeout-timeout/4 {
		return nil
	}
	return in.set(now.Add(timeout))
}

// set sets the read deadline, unless an interrupt came first.
func (in *Input) set(t time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cut {
		return errInterrupted
	}
	in.deadline = t
	return in.nc.SetReadDeadline(t)
}

// Interrupt makes a read of another goroutine end, and all later ones until
// resume. It does not block.
func (in *Input) Interrupt() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cut = true
	_ = in.nc.SetReadDeadline(time.Unix(1, 0))
}

// Resume undoes an interrupt and every deadline.
func (in *Input) Resume() error {
	in.mu.Lock()
	in.cut = false
	in.mu.Unlock()
	return in.set(time.Time{})
}

// IsInterrupted says whether a read's error came from interrupt.
func IsInterrupted(err error) bool {
	var timeout net.Error
	return errors.Is(err, errInterrupted) || errors.As(err, &timeout) && timeout.Timeout()
}
