package edge

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
)

// stream1 is a long-running response over HTTP/1.1. Whoever has frames writes
// them; the only goroutine of an idle one is blocked in a read that ends when the
// client leaves or when it is interrupted by Close:
//
//	open --- Close ------------> closing --> Stop --> last chunk, keep-alive
//	  |                                              or end of the connection
//	  +---- client left, --------> gone -----> Stop --> end of the connection
//	        write failed, cut
//
// That of a Duplex is as it is written, without chunks; its goroutine passes on what
// the client sends, and the connection ends with it.
type stream1 struct {
	c       *http1Conn
	x       *exchange
	resp    *api.Response
	duplex  api.Duplex // the response's stream if it is one
	chunked bool
	keep    bool
	// discard is set when the request's body was not read: what the client sends is
	// then the rest of it.
	discard bool

	// closing is set by Close; later writes fail.
	closing atomic.Bool

	// mu is held while writing and guards what follows.
	mu      sync.Mutex
	over    bool
	written int64
	err     error // of a write

	one [1]byte
}

// stream writes the head of a stream, starts it and leaves the connection to a
// fresh goroutine: this one's stack has grown.
func (c *http1Conn) stream(x *exchange, resp *api.Response) verdict {
	x.ctx.stopWatching()
	s := &stream1{c: c, x: x, resp: resp, chunked: !x.http10}
	if duplex, ok := resp.Stream.(api.Duplex); ok {
		if err := c.mayUpgrade(x); err != nil {
			c.stopStream(resp.Stream)
			return c.refuseUpgrade(x, resp, err)
		}
		s.duplex, s.chunked = duplex, false
	} else if x.req.Body != nil {
		s.discard = x.body.remaining() != 0
		x.body.seal()
	}
	s.keep = s.chunked && !s.discard && x.mayKeep(resp)
	err := s.begin()
	if err == nil && !x.head {
		// From here on the connection belongs to the stream: a read that is pending
		// tells when the client has left.
		if err = c.in.resume(); err == nil {
			err = c.startStream(resp, s)
		}
		if err == nil {
			c.panics.Go(nil, "stream", s.wait)
			return handedOver
		}
		s.fail(err)
	}
	// Nothing was started, or all that was is over.
	c.stopStream(resp.Stream)
	return x.finish(resp, s.written, s.keep, err)
}

// begin writes the head and gives back what an open stream does not need.
func (s *stream1) begin() error {
	c := s.c
	s.x.begin()
	buf := c.getBuffer(smallBuffer)
	defer c.buffers.put(buf)
	if s.duplex != nil {
		buf.b = appendSwitch(buf.b, s.resp.Header)
	} else {
		f := framing{length: -1, chunked: s.chunked && !s.x.head, close: !s.keep}
		buf.b = c.appendHead(buf.b, s.x, s.resp.Status, s.resp.Header, f)
	}
	if _, err := c.out.Write(buf.b); err != nil {
		return err
	}
	if s.discard {
		c.in.release()
	}
	c.in.releaseEmpty()
	return nil
}

// wait is the stream's goroutine. It goes on with the next request when the
// response ended well and the client may send one.
func (s *stream1) wait() {
	c := s.c
	defer c.contain()
	n, err := s.read()
	clean := s.closing.Load() && n == 0 && err != nil && interrupted(err)
	if !clean {
		// First, so that a write that is blocked fails and Stop need not wait for it.
		c.abort()
	}
	c.stopStream(s.resp.Stream)
	written, err := s.finish(clean)
	v := s.x.finish(s.resp, written, clean && s.keep, err)
	if s.duplex != nil && clean && err == nil {
		c.linger(c.o.lingerTimeout)
	}
	if v != keepOpen || c.in.resume() != nil || !c.awaitRequest() {
		c.end()
		return
	}
	c.serve()
}

// read blocks until the client leaves, sends what it should not, or until it is
// interrupted.
func (s *stream1) read() (n int, err error) {
	switch {
	case s.duplex != nil:
		return 0, s.receive()
	case s.c.in.br != nil:
		return 0, nil // the next request is here already
	case !s.discard:
		return s.c.nc.Read(s.one[:])
	}
	buf := s.c.getBuffer(smallBuffer)
	defer s.c.buffers.put(buf)
	for err == nil {
		_, err = s.c.nc.Read(buf.b[:cap(buf.b)])
	}
	return 0, err
}

// receiveBuffer is what an idle Duplex holds to read into: its clients send little.
const receiveBuffer = 512

// receive passes on what the client of a Duplex sends, until it leaves or the reading
// is interrupted.
func (s *stream1) receive() (err error) {
	if br := s.c.in.br; br != nil {
		ahead, _ := br.Peek(br.Buffered())
		err = s.c.receive(s.duplex, ahead)
		s.c.in.release()
	}
	buf := make([]byte, receiveBuffer)
	for err == nil {
		var n int
		if n, err = s.c.nc.Read(buf); n > 0 && err == nil {
			err = s.c.receive(s.duplex, buf[:n])
		}
	}
	if !errors.Is(err, errReceived) {
		return err
	}
	for err = nil; err == nil; {
		_, err = s.c.nc.Read(buf)
	}
	return err
}

// finish writes the last chunk of a stream that ended well.
func (s *stream1) finish(clean bool) (written int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if clean && s.chunked && s.err == nil {
		_, s.err = s.c.out.Write([]byte("0\r\n\r\n"))
	}
	return s.written, s.err
}

// fail ends a stream whose response cannot be completed.
func (s *stream1) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.err == nil {
		s.err = err
	}
	s.c.abort()
}

// WriteFrames implements api.StreamWriter: all frames in one chunk and, unless
// they are very many, in one write.
func (s *stream1) WriteFrames(frames [][]byte) error {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.over, s.closing.Load():
		return errStreamOver
	case size == 0:
		return nil
	}
	if s.c.short() && !s.c.out.writable() {
		s.c.metrics.slow.Inc()
		return s.broken(errSlow)
	}
	room := size + chunkOverhead
	if s.c.out.slow {
		room = smallBuffer
	}
	w := frameWriter{dst: &s.c.out, buf: s.c.getBuffer(room)}
	defer s.c.buffers.put(w.buf)
	if s.chunked {
		w.buf.b = appendChunkHead(w.buf.b, size)
	}
	for _, f := range frames {
		w.add(f)
	}
	if s.chunked {
		w.addString("\r\n")
	}
	w.flush()
	if w.err != nil {
		return s.broken(w.err)
	}
	s.written += int64(size)
	return nil
}

// broken ends a stream to which nothing can be written any more. The caller holds mu.
func (s *stream1) broken(err error) error {
	s.err = err
	s.c.abort() // wakes wait
	return err
}

// Close implements api.StreamWriter.
func (s *stream1) Close() {
	if s.closing.CompareAndSwap(false, true) {
		s.c.in.interrupt()
	}
}

// Abort implements api.StreamWriter: without the last chunk the client knows
// that something is missing.
func (s *stream1) Abort() {
	if s.closing.CompareAndSwap(false, true) {
		s.c.abort() // wakes wait, which finds that this was no interrupt
	}
}
