package edge

import (
	"errors"
	"net"
	"time"
)

const (
	// RecordSize is the most that a TLS record holds.
	RecordSize = 16 << 10
	// recordHead is what is before it, with its length at the end.
	recordHead = 5
	// SmallBuffer holds a head and a small body, which then go out in one TLS record.
	SmallBuffer = 16 << 10
	// LargeBuffer collects what a BodyTo writes in small pieces: four TLS records.
	LargeBuffer = 64 << 10
	// WriteSlice is how much is written between two looks at the write deadline, and
	// so what a client must take within WriteTimeout.
	WriteSlice = 512 << 10
	// RecordsBuffer gathers the TLS records of a writeSlice; 32 bytes more for each
	// are enough for AEAD ciphers.
	RecordsBuffer = WriteSlice / RecordSize * (RecordSize + 32)
	// slowWrite is how long a write takes to a client that is not waited for with much
	// in hand again.
	slowWrite = 100 * time.Millisecond
)

// Output is the writing side of a connection, used by one goroutine at a time.
type Output struct {
	c        *Conn
	nc       net.Conn
	records  *Records // under nc; nil without TLS
	Deadline time.Time
	// gathered holds TLS records between gather and release.
	gathered *Buffer
	// Slow says that the last write waited for the client.
	Slow bool
	// Now is for who writes and must not wait for the client.
	Now nowait
}

func (o *Output) Init(c *Conn) {
	o.c, o.nc, o.records = c, c.NetConn, c.Records
	o.Now.init(socketOf(c.raw))
}

// Write writes all of p, within WriteTimeout for each writeSlice. After an error
// the connection is of no use any more.
func (o *Output) Write(p []byte) (n int, err error) {
	for {
		began, err := o.arm()
		if err != nil {
			return n, err
		}
		m, err := o.writePart(p[:min(len(p), WriteSlice)])
		n += m
		if o.Slow = time.Since(began) > slowWrite; o.Slow && err == nil {
			err = o.Release()
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
func (o *Output) writePart(p []byte) (n int, err error) {
	if o.records == nil || o.gathered != nil || o.Slow || len(p) <= RecordSize {
		return o.nc.Write(p)
	}
	return o.records.through(o.c, o.nc, p)
}

// Gather has TLS records written many at a time from now on, until release or until
// the client proves slow.
func (o *Output) Gather() {
	if o.records == nil || o.Slow {
		return
	}
	if o.gathered = o.c.getLarge(RecordsBuffer); o.gathered != nil {
		o.records.Gather(o.gathered)
	}
}

// Release writes what is gathered, at most a writeSlice, for which the client has
// WriteTimeout once more.
func (o *Output) Release() error {
	if o.gathered == nil {
		return nil
	}
	_, err := o.arm()
	if releaseErr := o.records.Release(); err == nil {
		err = releaseErr
	}
	o.c.Buffers.Put(o.gathered)
	o.gathered = nil
	return err
}

// arm pushes the deadline ahead when less than three quarters of it are left.
func (o *Output) arm() (now time.Time, err error) {
	now, timeout := time.Now(), o.c.Options.WriteTimeout
	if o.Deadline.Sub(now) >= timeout-timeout/4 {
		return now, nil
	}
	o.Deadline = now.Add(timeout)
	return now, o.nc.SetWriteDeadline(o.Deadline)
}

// TakesMore reports whether the socket takes something at once, where that can be told.
func (o *Output) TakesMore() bool {
	raw := socketOf(o.c.raw)
	ok := true
	return raw == nil || raw.Control(func(fd uintptr) { ok = writable(fd) }) == nil && ok
}

// Disarm takes the deadline away, for an Upgrade.
func (o *Output) Disarm() error {
	o.Deadline = time.Time{}
	return o.nc.SetWriteDeadline(o.Deadline)
}

var (
	ErrTooLong  = errors.New("the body is longer than its announced length")
	ErrTooShort = errors.New("the body is shorter than its announced length")
)

// WriteBuffers writes buffers: those of several TLS records at once. Without wait it leaves
// what the client does not take at once, which are rest bytes, for settle.
func (o *Output) WriteBuffers(bufs []*Buffer, wait bool) (rest int, err error) {
	defer func() {
		if e := recover(); e != nil {
			o.c.Panics.Recovered("connection", e)
			err = ErrPanicked
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
			if err := o.Now.write(b.B); err != nil {
				return 0, err
			}
		}
		return len(o.Now.rest), nil
	case wait:
		return 0, o.writeRecords(bufs)
	}
	o.records.hold(&o.Now)
	err = o.writeRecords(bufs)
	return o.records.held(), err
}

// writePlain writes buffers without TLS.
func (o *Output) writePlain(bufs []*Buffer) error {
	if len(bufs) == 1 {
		_, err := o.nc.Write(bufs[0].B)
		return err
	}
	parts := make(net.Buffers, len(bufs))
	for i, b := range bufs {
		parts[i] = b.B
	}
	_, err := parts.WriteTo(o.nc)
	return err
}

// writeRecords writes buffers as a TLS record each.
func (o *Output) writeRecords(bufs []*Buffer) (err error) {
	if len(bufs) > 1 {
		size := LargeBuffer
		if len(bufs) > 3 {
			size = RecordsBuffer
		}
		if gathered := o.c.getLarge(size); gathered != nil {
			o.records.Gather(gathered)
			defer func() {
				if releaseErr := o.records.Release(); err == nil {
					err = releaseErr
				}
				o.c.Buffers.Put(gathered)
			}()
		}
	}
	for _, b := range bufs {
		if _, err := o.nc.Write(b.B); err != nil {
			return err
		}
	}
	return nil
}

// Settle writes what a write that did not wait has left.
func (o *Output) Settle() error {
	if _, err := o.arm(); err != nil {
		return err
	}
	if o.records != nil {
		return o.records.settle()
	}
	_, err := o.nc.Write(o.Now.rest)
	o.Now.rest = nil
	return err
}
