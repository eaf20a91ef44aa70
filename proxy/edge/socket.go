package edge

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// recordHead is the size of the header of a TLS record, with the length at its end.
	recordHead = 5
	// ownRecord is more than a record has that TLS writes while it reads: an alert, a key update.
	ownRecord = 64
)

// errWouldBlock is an error after which TLS may be read again.
var errWouldBlock error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read yet" }
func (wouldBlock) Timeout() bool   { return false }
func (wouldBlock) Temporary() bool { return true }

// socket is a client's connection below HTTP and TLS. crypto/tls writes every record of 16 KiB by
// itself, which is a system call and most often a wake-up of the reader each. Between gather and
// release, records and other writes are collected and leave several at a time. Between
// beginNonblocking and settle no write waits for the client.
//
// Writes are safe for concurrent use, as TLS needs it: reading may write, too (alerts, key
// updates).
type socket struct {
	net.Conn
	// raw gives access to the descriptor; nil if reads and writes cannot be nonblocking.
	raw syscall.RawConn
	// timeout bounds how long the client may take to accept records that TLS itself writes, see
	// writeOwn.
	timeout time.Duration

	// offline makes reads fail that would go to the socket; more is unset when the last read
	// brought a single TLS record. direct has reads go to fd, where they do not wait. All are for
	// the goroutine that reads.
	offline, more, direct bool
	fd                    int

	mu struct {
		sync.Mutex
		gathered *Buffer // nil while nothing is gathered
		// nonblocking is set while writes must not wait; rest holds the bytes that the client has
		// not accepted.
		nonblocking bool
		rest        []byte
		// err is the error of a write whose bytes count as written: nothing may follow them.
		err error
	}
	// try is tryWrite, made once; tried and tryErr are its argument and result, guarded by mu.
	try    func(fd uintptr) bool
	tried  []byte
	tryErr error
}

// Read implements net.Conn. After errWouldBlock TLS can continue.
func (s *socket) Read(p []byte) (n int, err error) {
	switch {
	case s.offline:
		return 0, errWouldBlock
	case s.direct:
		var again bool
		if n, again, err = readNow(s.fd, p); again {
			err = errWouldBlock
		}
	default:
		n, err = s.Conn.Read(p)
	}
	s.more = n > recordHead && n != recordHead+int(binary.BigEndian.Uint16(p[recordHead-2:]))
	return n, err
}

func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return 0, s.mu.err
	}
	if s.mu.gathered == nil {
		return s.writeLocked(p)
	}
	for n := 0; ; {
		b := s.mu.gathered.B
		k := min(len(p)-n, cap(b)-len(b))
		s.mu.gathered.B = append(b, p[n:n+k]...)
		if n += k; n == len(p) {
			return n, nil
		}
		if err := s.flushLocked(); err != nil {
			return n, err
		}
	}
}

// writeLocked writes p to the socket. The caller holds mu.
func (s *socket) writeLocked(p []byte) (int, error) {
	switch {
	case s.mu.nonblocking:
		return len(p), s.writeNonblockingLocked(p)
	case len(p) <= ownRecord:
		return s.writeOwn(p)
	}
	return s.Conn.Write(p)
}

// writeOwn writes records that TLS may have created by itself, such as a key update. The write
// deadline was set for the last response and may have passed long ago. A write that fails at once
// because of it is retried with a new deadline: if a key update fails, so does the next response.
func (s *socket) writeOwn(p []byte) (int, error) {
	began := time.Now()
	n, err := s.Conn.Write(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > s.timeout/4 {
		return n, err
	}
	if err := s.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

// writeNonblockingLocked writes the bytes that the client accepts at once, and appends the rest,
// and all later bytes, to s.rest.
func (s *socket) writeNonblockingLocked(p []byte) error {
	if len(s.mu.rest) == 0 {
		if s.try == nil {
			s.try = s.tryWrite
		}
		s.tried, s.tryErr = p, nil
		err := s.raw.Write(s.try)
		p, s.tried = s.tried, nil
		if err = errors.Join(err, s.tryErr); err != nil {
			return err
		}
	}
	s.mu.rest = append(s.mu.rest, p...)
	return nil
}

// tryWrite takes off tried what fd takes. It is never to be called again.
func (s *socket) tryWrite(fd uintptr) (done bool) {
	n, err := writeNow(int(fd), s.tried)
	s.tried, s.tryErr = s.tried[n:], err
	return true
}

// gather collects what is written from now on in buf, until release.
func (s *socket) gather(buf *Buffer) {
	s.mu.Lock()
	s.mu.gathered = buf
	s.mu.Unlock()
}

// release writes what was gathered and ends the gathering.
func (s *socket) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.flushLocked()
	s.mu.gathered = nil
	return err
}

func (s *socket) flushLocked() error {
	if s.mu.err == nil && len(s.mu.gathered.B) > 0 {
		_, s.mu.err = s.writeLocked(s.mu.gathered.B)
		s.mu.gathered.B = s.mu.gathered.B[:0]
	}
	return s.mu.err
}

// beginNonblocking has writes keep what the client does not take at once.
func (s *socket) beginNonblocking() {
	s.mu.Lock()
	s.mu.nonblocking = true
	s.mu.Unlock()
}

// untaken returns how many bytes are waiting since beginNonblocking. If there are none, nonblocking
// mode ends; otherwise settle ends it.
func (s *socket) untaken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.nonblocking = len(s.mu.rest) > 0
	return len(s.mu.rest)
}

// settle writes the waiting bytes, and waits until the client accepts them.
func (s *socket) settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err == nil {
		_, s.mu.err = s.Conn.Write(s.mu.rest)
	}
	s.mu.nonblocking, s.mu.rest = false, nil
	return s.mu.err
}

// takesMore reports whether the descriptor takes something at once. It is true where that cannot be
// known.
func (s *socket) takesMore() bool {
	ok := true
	return s.raw == nil || s.raw.Control(func(fd uintptr) { ok = writable(fd) }) == nil && ok
}

// CloseWrite closes the sending side, or all where the connection has no sides.
func (s *socket) CloseWrite() error {
	if half, ok := s.Conn.(halfCloser); ok {
		return half.CloseWrite()
	}
	return s.Conn.Close()
}

type halfCloser interface{ CloseWrite() error }
