package edge

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"
)

var errInterrupted = errors.New("the read was interrupted")

// readers are a server's pools of read buffers, which are in use only while a request is under way.
type readers struct{ small, large sync.Pool }

func (r *readers) pool(size int) *sync.Pool {
	if size > SmallHead {
		return &r.large
	}
	return &r.small
}

func (r *readers) get(src *Input, size int) *bufio.Reader {
	if br, ok := r.pool(size).Get().(*bufio.Reader); ok {
		br.Reset(src)
		return br
	}
	return bufio.NewReaderSize(src, size)
}

func (r *readers) put(br *bufio.Reader) {
	br.Reset(nil)
	r.pool(br.Size()).Put(br)
}

// ReadMode determines how the read deadline is updated while reading.
type ReadMode uint8

const (
	ReadWait ReadMode = iota // as set: waiting for a request, or for the client to leave
	ReadHead                 // one deadline for the whole header, set at the second read
	ReadBody                 // pushed ahead while bytes come
)

// Input is the reading side of a connection. It holds a buffer only from a request's first byte to
// its last, so that an idle connection has none. Its methods are for the owner of the connection,
// but Interrupt, which is for anyone.
type Input struct {
	conn    net.Conn // TLS over socket, or socket
	socket  *socket
	secure  bool // conn is TLS
	readers *readers
	options *Options
	Mode    ReadMode
	// Buf is the buffer, nil while there is none.
	Buf *bufio.Reader
	// ahead holds bytes that were already read from the connection and are read first.
	ahead []byte
	// first is the buffer of a read that waits without Buf. taken is true if its byte is the only
	// one that was read of its TLS record.
	first [1]byte
	taken bool
	// Err is the connection's last error, which is not a parser's.
	Err error
	// HeadBegun is set when the deadline of ReadHead is.
	HeadBegun bool
	// Limit is when the whole body must be there, zero for no such limit.
	Limit time.Time
	// tryFill is fill, made once. It lets a connection wait for its first byte without a buffer,
	// or the stack that TLS takes: of 8 KiB where it waits inside of it, of 4 once the garbage
	// collector has seen it.
	tryFill func(fd uintptr) bool

	// mu guards what follows, so that an interrupt is not lost to a deadline that is
	// set at the same moment.
	mu          sync.Mutex
	interrupted bool
	deadline    time.Time
}

// Read implements io.Reader for the bufio.Reader.
func (in *Input) Read(p []byte) (int, error) {
	n := copy(p, in.ahead)
	in.ahead = in.ahead[n:]
	switch {
	case n > 0 && !in.taken:
		return n, nil
	case in.taken && n < len(p):
		// The rest of the TLS record is decrypted already.
		in.taken = false
	case in.socket.offline, in.socket.direct:
	default:
		if err := in.arm(); err != nil {
			return n, err
		}
	}
	m, err := in.conn.Read(p[n:])
	if err != nil {
		in.Err = err
	}
	return n + m, err
}

// WaitFor blocks until the client sends something, the connection ends or the timeout passes. It
// holds no buffer meanwhile. ok is true if Buf has a byte.
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
	if in.tryFill == nil {
		return in.readFirst()
	}
	if err := in.socket.raw.Read(in.tryFill); err != nil {
		in.Err = err
		return false
	}
	return in.Buf != nil && (len(in.ahead) > 0 || in.Buf.Buffered() > 0)
}

// fill reads what is there from fd. It returns false when that is nothing, to be called again when
// there is something.
func (in *Input) fill(fd uintptr) (done bool) {
	s := in.socket
	s.direct, s.fd = true, int(fd)
	if in.secure { // what is there may be less than a record, which TLS keeps
		done = in.readFirst() || !errors.Is(in.Err, errWouldBlock)
	} else {
		br := in.readers.get(in, SmallHead)
		_, err := br.Peek(1)
		if done = !errors.Is(err, errWouldBlock); done {
			in.Buf, in.Err = br, err
		} else {
			in.readers.put(br)
		}
	}
	s.direct = false
	return done
}

// readFirst reads a byte without a buffer, and allocates the buffer for the following bytes.
func (in *Input) readFirst() (ok bool) {
	n, err := in.conn.Read(in.first[:])
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

// FillHere reads the next TLS record into the empty buffer, if it arrived together with the last
// one.
func (in *Input) FillHere() bool {
	s := in.socket
	if !in.secure || !s.more {
		return false
	}
	s.offline = true
	_, err := in.Buf.Peek(1)
	s.offline = false
	if err != nil {
		in.Err, s.more = nil, false // the next read meets again what is not for want of bytes
	}
	return err == nil
}

// hasPreface reports whether what begins is HTTP/2's preface, and no method.
func (in *Input) hasPreface() bool {
	in.Mode = ReadHead
	b, err := in.Buf.Peek(3) // no request is shorter
	return err == nil && string(b) == "PRI"
}

// Acquire makes sure that there is a buffer.
func (in *Input) Acquire() {
	if in.Buf == nil {
		in.Buf = in.readers.get(in, SmallHead)
	}
}

// Grow exchanges the buffer for a large one with the same content.
func (in *Input) Grow(size int) {
	small := in.Buf
	in.ahead, _ = small.Peek(small.Buffered())
	in.Buf = in.readers.get(in, size)
	_, _ = in.Buf.Peek(len(in.ahead)) // one Read, which copies it
	in.ahead = nil
	in.readers.put(small)
}

// Release gives the buffer back, with whatever is in it.
func (in *Input) Release() {
	if in.Buf != nil {
		in.readers.put(in.Buf)
		in.Buf = nil
	}
}

// ReleaseEmpty gives the buffer back unless it holds the next request.
func (in *Input) ReleaseEmpty() {
	if in.Buf != nil && in.Buf.Buffered() == 0 {
		in.Release()
	}
}

// arm sets the deadline of the mode.
func (in *Input) arm() error {
	switch in.Mode {
	case ReadHead:
		if !in.HeadBegun {
			in.HeadBegun = true
			return in.set(time.Now().Add(in.options.ReadHeaderTimeout))
		}
	case ReadBody:
		now, idle := time.Now(), in.options.BodyIdleTimeout
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
	if in.interrupted {
		return errInterrupted
	}
	in.deadline = t
	return in.conn.SetReadDeadline(t)
}

// Interrupt makes a read of another goroutine end, and all later ones until
// Resume. It does not block.
func (in *Input) Interrupt() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.interrupted = true
	_ = in.conn.SetReadDeadline(time.Unix(1, 0))
}

// Resume undoes an interrupt and every deadline.
func (in *Input) Resume() error {
	in.mu.Lock()
	in.interrupted = false
	in.mu.Unlock()
	return in.set(time.Time{})
}

// IsInterrupted reports whether a read's error came from Interrupt, or from a deadline.
func IsInterrupted(err error) bool {
	var timeout net.Error
	return errors.Is(err, errInterrupted) || errors.As(err, &timeout) && timeout.Timeout()
}
