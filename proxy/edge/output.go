package edge

import (
	"net"
	"time"
)

// slowWrite is how long a write takes to a client for which much is not held any more while
// it is waited for.
const slowWrite = 100 * time.Millisecond

// Output is the writing side of a connection. It is used by one goroutine at a time.
type Output struct {
	conn    net.Conn // TLS over socket, or socket
	socket  *socket
	holder  *Holder
	timeout time.Duration // Options.WriteTimeout
	// secure is true if conn is TLS, whose writes are worth gathering.
	secure   bool
	deadline time.Time
	gathered *Buffer // between Gather and Release
	// slow is set when the last write waited for the client.
	slow bool
}

// Write writes all of p, within WriteTimeout for each WriteSlice. After an error
// the connection is of no use any more.
func (o *Output) Write(p []byte) (n int, err error) {
	for {
		began, err := o.arm()
		if err != nil {
			return n, err
		}
		m, err := o.writePart(p[:min(len(p), WriteSlice)])
		n += m
		if o.slow = time.Since(began) > slowWrite; o.slow && err == nil {
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
	if o.gathered != nil || len(p) <= RecordSize || !o.Gather(len(p)) {
		return o.conn.Write(p)
	}
	n, err = o.conn.Write(p)
	if releaseErr := o.release(); err == nil && releaseErr != nil {
		n, err = 0, releaseErr
	}
	return n, err
}

// Gather has TLS records written many at a time from now on, until Release or until the client
// proves slow, if size bytes are worth that and there is room for it.
func (o *Output) Gather(size int) bool { return o.secure && !o.slow && o.gather(size) }

func (o *Output) gather(size int) bool {
	most := LargeBuffer
	if size > 3*RecordSize {
		most = RecordsBuffer
	}
	if o.gathered = o.holder.largeBuffer(most); o.gathered == nil {
		return false
	}
	o.socket.gather(o.gathered)
	return true
}

// Release writes what is gathered, at most a WriteSlice, for which the client has
// WriteTimeout once more.
func (o *Output) Release() error {
	if o.gathered == nil {
		return nil
	}
	_, err := o.arm()
	if releaseErr := o.release(); err == nil {
		err = releaseErr
	}
	return err
}

func (o *Output) release() error {
	err := o.socket.release()
	o.holder.buffers.Put(o.gathered)
	o.gathered = nil
	return err
}

// arm pushes the deadline ahead when less than three quarters of it are left.
func (o *Output) arm() (now time.Time, err error) {
	now = time.Now()
	if o.deadline.Sub(now) >= o.timeout-o.timeout/4 {
		return now, nil
	}
	o.deadline = now.Add(o.timeout)
	return now, o.conn.SetWriteDeadline(o.deadline)
}

// Disarm removes the write deadline, for an upgraded connection.
func (o *Output) Disarm() error {
	o.deadline = time.Time{}
	return o.conn.SetWriteDeadline(o.deadline)
}

// IsSlow reports whether the last write waited for the client.
func (o *Output) IsSlow() bool { return o.slow }

// TakesMore reports whether the client takes something at once. It is true where that cannot be
// known.
func (o *Output) TakesMore() bool { return o.socket.takesMore() }

// CanWriteNow reports whether WriteBuffers can do without waiting.
func (o *Output) CanWriteNow() bool { return o.socket.raw != nil }

// WriteBuffers writes buffers, each as a TLS record or less, several at a time. Without wait it
// leaves what the client does not take at once, rest bytes, for Settle.
func (o *Output) WriteBuffers(bufs []*Buffer, wait bool) (rest int, err error) {
	if _, err := o.arm(); err != nil {
		return 0, err
	}
	if !wait {
		o.socket.beginNonblocking()
	}
	gathered := len(bufs) > 1 && o.gather(len(bufs)*RecordSize)
	for _, b := range bufs {
		if _, err = o.conn.Write(b.B); err != nil {
			break
		}
	}
	if gathered {
		if releaseErr := o.release(); err == nil {
			err = releaseErr
		}
	}
	return o.socket.untaken(), err
}

// Settle writes what WriteBuffers has left, and waits for the client to take it.
func (o *Output) Settle() error {
	if _, err := o.arm(); err != nil {
		return err
	}
	return o.socket.settle()
}
