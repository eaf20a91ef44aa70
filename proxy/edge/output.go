package edge

import (
	"errors"
	"net"
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

// output is the writing side of a connection, used by one goroutine at a time.
type output struct {
	c        *conn
	nc       net.Conn
	records  *records // under nc; nil without TLS
	deadline time.Time
	// gathered holds TLS records between gather and release.
	gathered *buffer
	// slow says that the last write waited for the client.
	slow bool
	// now is for who writes and must not wait for the client.
	now nowait
}

func (o *output) init(c *conn) {
	o.c, o.nc, o.records = c, c.nc, c.records
	o.now.init(socketOf(c.raw))
}

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
	o.c.buffers.put(o.gathered)
	o.gathered = nil
	return err
}

// arm pushes the deadline ahead when less than three quarters of it are left.
func (o *output) arm() (now time.Time, err error) {
	now, timeout := time.Now(), o.c.o.WriteTimeout
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

var (
	errTooLong  = errors.New("the body is longer than its announced length")
	errTooShort = errors.New("the body is shorter than its announced length")
)

// writeBuffers writes buffers: those of several TLS records at once. Without wait it leaves
// what the client does not take at once, which are rest bytes, for settle.
func (o *output) writeBuffers(bufs []*buffer, wait bool) (rest int, err error) {
	defer func() {
		if e := recover(); e != nil {
			o.c.panics.Recovered("connection", e)
			err = errPanicked
		}
	}()
	if _, err := o.arm(); err != nil {
		return 0, err
	}
	switch {
	case o.records == nil && wait:
		return 0, o.writePlain(bufs)
	case o.records == nil:
		for _, b := range bufs {
			if err := o.now.write(b.b); err != nil {
				return 0, err
			}
		}
		return len(o.now.rest), nil
	case wait:
		return 0, o.writeRecords(bufs)
	}
	o.records.hold(&o.now)
	err = o.writeRecords(bufs)
	return o.records.held(), err
}

// writePlain writes buffers without TLS.
func (o *output) writePlain(bufs []*buffer) error {
	if len(bufs) == 1 {
		_, err := o.nc.Write(bufs[0].b)
		return err
	}
	parts := make(net.Buffers, len(bufs))
	for i, b := range bufs {
		parts[i] = b.b
	}
	_, err := parts.WriteTo(o.nc)
	return err
}

// writeRecords writes buffers as a TLS record each.
func (o *output) writeRecords(bufs []*buffer) (err error) {
	if len(bufs) > 1 {
		size := largeBuffer
		if len(bufs) > 3 {
			size = recordsBuffer
		}
		if gathered := o.c.getLarge(size); gathered != nil {
			o.records.gather(gathered)
			defer func() {
				if releaseErr := o.records.release(); err == nil {
					err = releaseErr
				}
				o.c.buffers.put(gathered)
			}()
		}
	}
	for _, b := range bufs {
		if _, err := o.nc.Write(b.b); err != nil {
			return err
		}
	}
	return nil
}

// settle writes what a write that did not wait has left.
func (o *output) settle() error {
	if _, err := o.arm(); err != nil {
		return err
	}
	if o.records != nil {
		return o.records.settle()
	}
	_, err := o.nc.Write(o.now.rest)
	o.now.rest = nil
	return err
}
