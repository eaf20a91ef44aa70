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

// records is the socket under a TLS connection. crypto/tls writes every record of
// 16 KiB by itself, which is a system call and most often a wake-up of the reader
// each. Between gather and release records are collected and go out several at a
// time. Between hold and settle no write waits for the client.
//
// Writes are safe for concurrent use, as TLS needs it: reading may write, too (alerts,
// key updates).
type records struct {
	net.Conn
	// timeout is how long a client may take for what TLS itself writes, see sendOwn.
	timeout time.Duration

	// here makes reads fail that would go to the socket; more is unset when the last one
	// brought a single record. direct has them go to fd, where they do not wait. All are for
	// who reads.
	here, more, direct bool
	fd                 int

	mu struct {
		sync.Mutex
		buf *buffer // nil while nothing is gathered
		now *nowait // nil while writes may wait
		// err is that of a write whose records TLS takes for written: nothing may
		// follow them.
		err error
	}
}

// Read implements net.Conn. After errWouldBlock TLS goes on.
func (r *records) Read(p []byte) (n int, err error) {
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
func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.err != nil {
		return 0, r.mu.err
	}
	if r.mu.buf == nil {
		return r.sendLocked(p)
	}
	for n := 0; ; {
		b := r.mu.buf.b
		k := min(len(p)-n, cap(b)-len(b))
		r.mu.buf.b = append(b, p[n:n+k]...)
		if n += k; n == len(p) {
			return n, nil
		}
		if err := r.flushLocked(); err != nil {
			return n, err
		}
	}
}

// gather collects what is written from now on in buf, until release.
func (r *records) gather(buf *buffer) {
	r.mu.Lock()
	r.mu.buf = buf
	r.mu.Unlock()
}

// release writes what was gathered and ends the gathering.
func (r *records) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.flushLocked()
	r.mu.buf = nil
	return err
}

// sendLocked writes to the socket.
func (r *records) sendLocked(p []byte) (int, error) {
	if r.mu.now == nil {
		if len(p) <= ownRecord {
			return r.sendOwn(p)
		}
		return r.Conn.Write(p)
	}
	if err := r.mu.now.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ownRecord is more than a record has that TLS writes while it reads: an alert, a key update.
const ownRecord = 64

// sendOwn writes what may be TLS's own. The write deadline is that of the last answer, which may be long ago: what says
// that it is over at once gets a deadline of its own, for if a key update failed, so would the next answer.
func (r *records) sendOwn(p []byte) (int, error) {
	began := time.Now()
	n, err := r.Conn.Write(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > r.timeout/4 {
		return n, err
	}
	if err := r.SetWriteDeadline(time.Now().Add(r.timeout)); err != nil {
		return 0, err
	}
	return r.Conn.Write(p)
}

// hold has w keep what the client does not take at once.
func (r *records) hold(w *nowait) {
	r.mu.Lock()
	r.mu.now = w
	r.mu.Unlock()
}

// held says how much was kept since hold. If that is nothing, hold is over, else with
// settle.
func (r *records) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.mu.now.rest)
	if n == 0 {
		r.mu.now = nil
	}
	return n
}

// settle writes what was kept, and waits for the client to take it.
func (r *records) settle() error {
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
func (r *records) through(c *conn, tc io.Writer, p []byte) (n int, err error) {
	size := largeBuffer
	if len(p) > 3*recordSize {
		size = recordsBuffer
	}
	buf := c.getLarge(size)
	if buf == nil {
		return tc.Write(p)
	}
	defer c.buffers.put(buf)
	r.gather(buf)
	n, err = tc.Write(p)
	if releaseErr := r.release(); err == nil && releaseErr != nil {
		n, err = 0, releaseErr
	}
	return n, err
}

func (r *records) flushLocked() error {
	if r.mu.err == nil && len(r.mu.buf.b) > 0 {
		_, r.mu.err = r.sendLocked(r.mu.buf.b)
		r.mu.buf.b = r.mu.buf.b[:0]
	}
	return r.mu.err
}
