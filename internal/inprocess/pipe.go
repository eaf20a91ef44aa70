package inprocess

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeLimit is the number of bytes that a pipe buffers before the writer has to wait.
const pipeLimit = 256 << 10

// pipe carries bytes from one writer to one reader.
type pipe struct {
	mu sync.Mutex // guards everything below

	buf []byte // buf[off:] is unread
	off int
	// writeEnded and readEnded determine which side has closed the pipe.
	writeEnded, readEnded bool

	reader, writer side
}

// side holds what one side of a pipe waits for.
type side struct {
	cond     sync.Cond
	deadline time.Time
	timer    *time.Timer // fires at the deadline; nil without one
}

func newPipe() *pipe {
	p := &pipe{}
	p.reader.cond.L, p.writer.cond.L = &p.mu, &p.mu
	return p
}

// expired reports whether the side's deadline has passed; mu is held.
func (s *side) expired() bool { return !s.deadline.IsZero() && !time.Now().Before(s.deadline) }

// setDeadline sets the deadline of one side; the zero time means none.
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

// read returns buffered bytes, and waits for the first one.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readEnded:
			return 0, net.ErrClosed
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
		case p.writeEnded:
			return 0, io.EOF
		}
		p.reader.cond.Wait()
	}
}

// write appends b, and waits for room.
func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writeEnded, p.readEnded:
			return n, net.ErrClosed // Kubernetes' libraries recognize it by its text
		case p.writer.expired():
			return n, os.ErrDeadlineExceeded
		}
		if room := pipeLimit - (len(p.buf) - p.off); room > 0 {
			m := min(room, len(b)-n)
			p.put(b[n : n+m])
			p.reader.cond.Signal()
			if n += m; n == len(b) {
				return n, nil
			}
			continue
		}
		p.writer.cond.Wait()
	}
}

// put appends b and reuses the space of bytes that were read. mu is held.
func (p *pipe) put(b []byte) {
	if p.off > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.off:])]
		p.off = 0
	}
	p.buf = append(p.buf, b...)
}

// endWrite makes the reader read io.EOF after the last byte.
func (p *pipe) endWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writeEnded = true
	p.reader.cond.Broadcast()
	p.writer.cond.Broadcast()
}

// endRead makes both sides fail and drops the unread bytes.
func (p *pipe) endRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readEnded, p.buf, p.off = true, nil, 0
	p.reader.cond.Broadcast()
	p.writer.cond.Broadcast()
}
