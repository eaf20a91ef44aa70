package edge

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	// recordSize is the most that a TLS record holds.
	recordSize = 16 << 10
	// recordHead is what is before it, with its length at the end.
	recordHead = 5
	// smallBuffer holds a head and a small body, which then go out in one TLS record.
	smallBuffer = 16 << 10
	// largeBuffer collects what a BodyTo writes in small pieces: four TLS records.
	largeBuffer = 64 << 10
	// writeSlice is how much is written between two looks at the write deadline, and
	// so what a client must take within WriteTimeout.
	writeSlice = 512 << 10
	// recordsBuffer gathers the TLS records of a writeSlice; 32 bytes more for each
	// are enough for AEAD ciphers.
	recordsBuffer = writeSlice / recordSize * (recordSize + 32)
	// slowWrite is how long a write takes to a client that is not waited for with much
	// in hand again.
	slowWrite = 100 * time.Millisecond
)

// output is the writing side of a connection, used by one goroutine at a time but for
// continue100, which is HTTP/1.1's.
type output struct {
	c        *conn
	nc       net.Conn
	records  *records // under nc; nil without TLS
	deadline time.Time
	// gathered holds TLS records between gather and release.
	gathered *buffer
	// slow says that the last write waited for the client.
	slow bool

	// mu keeps an interim response out of a final one.
	mu sync.Mutex
	// final is set when the final response begins. Guarded by mu.
	final bool
}

func (o *output) init(c *conn) { o.c, o.nc, o.records = c, c.nc, c.records }

// Write writes all of p, within WriteTimeout for each writeSlice. After an error
// the connection is of no use any more.
func (o *output) Write(p []byte) (n int, err error) {
	for {
		began, err := o.arm()
		if err != nil {
			return n, err
		}
		m, err := o.writePart(p[:min(len(p), writeSlice)])
		n += m
		if o.slow = time.Since(began) > slowWrite; o.slow && err == nil {
			err = o.release()
		}
		if err != nil {
			return n, err
		}
		if p = p[m:]; len(p) == 0 {
			return n, nil
		}
	}
}

// writePart writes p within one deadline; of several TLS records many at a time.
func (o *output) writePart(p []byte) (n int, err error) {
	if o.records == nil || o.gathered != nil || o.slow || len(p) <= recordSize {
		return o.nc.Write(p)
	}
	return o.records.through(o.c, o.nc, p)
}

// gather has TLS records written many at a time from now on, until release or until
// the client proves slow.
func (o *output) gather() {
	if o.records == nil || o.slow {
		return
	}
	if o.gathered = o.c.getLarge(recordsBuffer); o.gathered != nil {
		o.records.gather(o.gathered)
	}
}

// release writes what is gathered, at most a writeSlice, for which the client has
// WriteTimeout once more.
func (o *output) release() error {
	if o.gathered == nil {
		return nil
	}
	_, err := o.arm()
	if releaseErr := o.records.release(); err == nil {
		err = releaseErr
	}
	o.c.srv.buffers.put(o.gathered)
	o.gathered = nil
	return err
}

// arm pushes the deadline ahead when less than three quarters of it are left.
func (o *output) arm() (now time.Time, err error) {
	now, timeout := time.Now(), o.c.srv.o.WriteTimeout
	if o.deadline.Sub(now) >= timeout-timeout/4 {
		return now, nil
	}
	o.deadline = now.Add(timeout)
	return now, o.nc.SetWriteDeadline(o.deadline)
}

// writable reports whether the socket takes something at once, where that can be told.
func (o *output) writable() bool {
	raw := socketOf(o.c.raw)
	ok := true
	return raw == nil || raw.Control(func(fd uintptr) { ok = writable(fd) }) == nil && ok
}

// disarm takes the deadline away, for an Upgrade.
func (o *output) disarm() error {
	o.deadline = time.Time{}
	return o.nc.SetWriteDeadline(o.deadline)
}

// reset prepares for the next request's response.
func (o *output) reset() {
	o.mu.Lock()
	o.final = false
	o.mu.Unlock()
}

// begin marks the begin of a final response.
func (o *output) begin() {
	o.mu.Lock()
	o.final = true
	o.mu.Unlock()
}

// continue100 tells the client to send its body, unless it got an answer already.
func (o *output) continue100() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.final {
		return nil
	}
	_, err := io.WriteString(o, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

var (
	errTooLong  = errors.New("the body is longer than its announced length")
	errTooShort = errors.New("the body is shorter than its announced length")
)

// bodyWriter is what a BodyTo writes to. It begins with the response head in its
// buffer.
type bodyWriter struct {
	dst io.Writer
	buf *buffer
	// left is how much may still be written, for a body of known length.
	left  int64
	known bool
	// chunked frames every Write as a chunk.
	chunked bool
	// urgent sends every Write at once.
	urgent bool
	// sent says that something left for the client, so that there is no way back.
	sent bool
	// written counts body bytes.
	written int64
	err     error
}

// Write implements io.Writer. Bodies of known length are collected into large
// writes; large pieces go out as they are.
func (w *bodyWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !w.known {
		return w.writeNow(p)
	}
	if int64(len(p)) > w.left {
		w.err = errTooLong
		return 0, w.err
	}
	w.left -= int64(len(p))
	w.written += int64(len(p))
	n := len(p)
	for len(p) > 0 {
		b := w.buf.b
		if len(b) == 0 && len(p) >= cap(b) {
			// Whole records; the rest joins what comes next.
			whole := len(p) - len(p)%smallBuffer
			if w.send(p[:whole]) != nil {
				return 0, w.err
			}
			p = p[whole:]
			continue
		}
		k := min(len(p), cap(b)-len(b))
		w.buf.b = append(b, p[:k]...)
		p = p[k:]
		if len(w.buf.b) == cap(b) && w.flush() != nil {
			return 0, w.err
		}
	}
	return n, nil
}

// writeNow sends a piece of a body of unknown length, as one chunk when chunked.
func (w *bodyWriter) writeNow(p []byte) (int, error) {
	w.written += int64(len(p))
	if w.chunked {
		if len(w.buf.b)+chunkOverhead > cap(w.buf.b) && w.flush() != nil {
			return 0, w.err
		}
		w.buf.b = appendChunkHead(w.buf.b, len(p))
	}
	if len(p)+len(w.buf.b)+chunkOverhead <= cap(w.buf.b) {
		w.buf.b = append(w.buf.b, p...)
	} else if w.flush() != nil || w.send(p) != nil {
		return 0, w.err
	}
	if w.chunked {
		w.buf.b = append(w.buf.b, "\r\n"...)
	}
	if w.urgent && w.flush() != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *bodyWriter) flush() error {
	if w.err != nil || len(w.buf.b) == 0 {
		return w.err
	}
	err := w.send(w.buf.b)
	w.buf.b = w.buf.b[:0]
	return err
}

func (w *bodyWriter) send(p []byte) error {
	w.sent = true
	_, w.err = w.dst.Write(p)
	return w.err
}

// finish ends a body that was written without an error.
func (w *bodyWriter) finish() error {
	if w.err == nil && w.known && w.left > 0 {
		w.err = errTooShort
	}
	if w.err == nil && w.chunked {
		w.buf.b = append(w.buf.b, "0\r\n\r\n"...)
	}
	return w.flush()
}

func appendChunkHead(dst []byte, size int) []byte {
	dst = strconv.AppendInt(dst, int64(size), 16)
	return append(dst, "\r\n"...)
}
