package edge

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Records is the socket under a TLS connection. crypto/tls writes every record of
// 16 KiB by itself, which is a system call and most often a wake-up of the reader
// each. Between gather and release records are collected and go out several at a
// time. Between hold and settle no write waits for the client.
//
// Writes are safe for concurrent use, as TLS needs it: reading may write, too (alerts,
// key updates).
type Records struct {
	net.Conn
	// Timeout is how long a client may take for what TLS itself writes, see sendOwn.
	Timeout time.Duration

	// here makes reads fail that would go to the socket; more is unset when the last one
	// brought a single record. direct has them go to fd, where they do not wait. All are for
	// who reads.
	here, more, direct bool
	fd                 int

	mu struct {
		sync.Mutex
		buf *Buffer // nil while nothing is gathered
		now *nowait // nil while writes may wait
		// err is that of a write whose records TLS takes for written: nothing may
		// follow them.
		err error
	}
}

// Read implements net.Conn. After errWouldBlock TLS goes on.
func (r *Records) Read(p []byte) (n int, err error) {
	switch {
	case r.here:
		return 0, errWouldBlock
	case r.direct:
		n, err = readNow(r.fd, p)
	default:
		n, err = r.Conn.Read(p)
	}
	r.more = n > recordHead && n != recordHead+int(binary.BigEndian.Uint16(p[recordHead-2:]))
	return n, err
}

// Write implements net.Conn.
func (r *Records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.err != nil {
		return 0, r.mu.err
	}
	if r.mu.buf == nil {
		return r.sendLocked(p)
	}
	for n := 0; ; {
		b := r.mu.buf.B
		k := min(len(p)-n, cap(b)-len(b))
		r.mu.buf.B = append(b, p[n:n+k]...)
		if n += k; n == len(p) {
			return n, nil
		}
		if err := r.flushLocked(); err != nil {
			return n, err
		}
	}
}

// Gather collects what is written from now on in buf, until release.
func (r *Records) Gather(buf *Buffer) {
	r.mu.Lock()
	r.mu.buf = buf
	r.mu.Unlock()
}

// Release writes what was gathered and ends the gathering.
func (r *Records) Release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.flushLocked()
	r.mu.buf = nil
	return err
}

// sendLocked writes to the socket.
func (r *Records) sendLocked(p []byte) (int, error) {
	if r.mu.now == nil {
		if len(p) <= OwnRecord {
			return r.sendOwn(p)
		}
		return r.Conn.Write(p)
	}
	if err := r.mu.now.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// OwnRecord is more than a record has that TLS writes while it reads: an alert, a key update.
const OwnRecord = 64

// sendOwn writes what may be TLS's own. The write deadline is that of the last answer, which may be long ago: what says
// that it is over at once gets a deadline of its own, for if a key update failed, so would the next answer.
func (r *Records) sendOwn(p []byte) (int, error) {
	began := time.Now()
	n, err := r.Conn.Write(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > r.Timeout/4 {
		return n, err
	}
	if err := r.SetWriteDeadline(time.Now().Add(r.Timeout)); err != nil {
		return 0, err
	}
	return r.Conn.Write(p)
}

// hold has w keep what the client does not take at once.
func (r *Records) hold(w *nowait) {
	r.mu.Lock()
	r.mu.now = w
	r.mu.Unlock()
}

// held says how much was kept since hold. If that is nothing, hold is over, else with
// settle.
func (r *Records) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.mu.now.rest)
	if n == 0 {
		r.mu.now = nil
	}
	return n
}

// settle writes what was kept, and waits for the client to take it.
func (r *Records) settle() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.mu.now
	r.mu.now = nil
	if r.mu.err == nil {
		_, r.mu.err = r.Conn.Write(w.rest)
	}
	w.rest = nil
	return r.mu.err
}

// through writes p to the TLS connection over r, its records many at a time.
func (r *Records) through(c *Conn, tc io.Writer, p []byte) (n int, err error) {
	size := LargeBuffer
	if len(p) > 3*RecordSize {
		size = RecordsBuffer
	}
	buf := c.getLarge(size)
	if buf == nil {
		return tc.Write(p)
	}
	defer c.Buffers.Put(buf)
	r.Gather(buf)
	n, err = tc.Write(p)
	if releaseErr := r.Release(); err == nil && releaseErr != nil {
		n, err = 0, releaseErr
	}
	return n, err
}

func (r *Records) flushLocked() error {
	if r.mu.err == nil && len(r.mu.buf.B) > 0 {
		_, r.mu.err = r.sendLocked(r.mu.buf.B)
		r.mu.buf.B = r.mu.buf.B[:0]
	}
	return r.mu.err
}
