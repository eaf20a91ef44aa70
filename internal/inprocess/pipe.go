package inprocess

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeLimit is how many bytes a pipe holds before the writer has to wait.
const pipeLimit = 256 << 10

// errReaderGone is what a writer gets when nobody reads any more. The libraries of
// Kubernetes know the end of a connection by the text of net.ErrClosed.
var errReaderGone = fmt.Errorf("in-process connection: the reader is gone: %w", net.ErrClosed)

// pipe carries bytes from one writer to one reader.
type pipe struct {
	mu sync.Mutex // guards everything below

	buf []byte // what is not read yet is buf[off:]
	off int
	// asleep tells that the reader waits; writes wake it only when told to.
	asleep bool
	// wend is what the reader gets behind the last byte, nil while the writer may
	// go on; rend what the writer gets, nil while the reader is there.
	wend, rend error

	reader, writer side
}

// side is the waiting of one end of a pipe.
type side struct {
	cond     sync.Cond
	deadline time.Time
	timer    *time.Timer // wakes at the deadline; nil without one
}

func newPipe(begun []byte) *pipe {
	p := &pipe{buf: begun}
	p.reader.cond.L, p.writer.cond.L = &p.mu, &p.mu
	return p
}

// expired reports whether the side's deadline has passed; mu is held.
func (s *side) expired() bool { return !s.deadline.IsZero() && !time.Now().Before(s.deadline) }

// setDeadline sets the deadline of one side, the zero time for none.
func (p *pipe) setDeadline(s *side, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if !t.IsZero() {
		s.timer = time.AfterFunc(time.Until(t), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			s.cond.Broadcast()
		})
	}
	s.cond.Broadcast()
}

// read takes what there is, waiting for the first byte.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.rend != nil:
			return 0, p.rend
		case p.reader.expired():
			return 0, os.ErrDeadlineExceeded
		case p.off < len(p.buf):
			n := copy(b, p.buf[p.off:])
			if p.off += n; p.off == len(p.buf) {
				p.buf, p.off = p.buf[:0], 0
			}
			p.writer.cond.Signal()
			return n, nil
		case len(b) == 0:
			return 0, nil
		case p.wend != nil:
			return 0, p.wend
		}
		p.asleep = true
		p.reader.cond.Wait()
		p.asleep = false
	}
}

// write puts b in, waiting for room. Unless wake is set a reader that waits goes
// on waiting, for flush or until the pipe is half full.
func (p *pipe) write(b []byte, wake bool) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.wend != nil:
			return n, io.ErrClosedPipe
		case p.rend != nil:
			return n, p.rend
		case p.writer.expired():
			return n, os.ErrDeadlineExceeded
		}
		if room := pipeLimit - (len(p.buf) - p.off); room > 0 {
			m := min(room, len(b)-n)
			p.put(b[n : n+m])
			if n += m; p.asleep && (wake || len(p.buf)-p.off >= pipeLimit/2) {
				p.reader.cond.Signal()
			}
			if n == len(b) {
				return n, nil
			}
			continue
		}
		p.writer.cond.Wait()
	}
}

// put appends; what was read makes room first. mu is held.
func (p *pipe) put(b []byte) {
	if p.off > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.off:])]
		p.off = 0
	}
	p.buf = append(p.buf, b...)
}

// flush lets the reader see what was written.
func (p *pipe) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asleep && p.off < len(p.buf) {
		p.reader.cond.Signal()
	}
	return p.rend
}

// endWrite ends the writing side: the reader gets err behind the last byte.
func (p *pipe) endWrite(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wend == nil {
		p.wend = err
	}
	p.reader.cond.Broadcast()
	p.writer.cond.Broadcast()
}

// endRead ends the reading side: both ends get err from now on, and what was not
// read is dropped.
func (p *pipe) endRead(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rend == nil {
		p.rend = err
	}
	p.buf, p.off = nil, 0
	p.reader.cond.Broadcast()
	p.writer.cond.Broadcast()
}
