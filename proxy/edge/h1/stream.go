package h1

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// stream is a long-running response. The producers of frames write them. The only goroutine of an
// idle stream is blocked in a read that ends when the client leaves or Close interrupts it:
//
//	open --- Close ------------> closing --> Stop --> last chunk, keep-alive
//	  |                                              or end of the connection
//	  +---- client left, --------> gone -----> Stop --> end of the connection
//	        write failed, aborted
//
// The frames of a Duplex are written as they are, without chunks; its goroutine passes on what
// the client sends, and the connection ends with it.
type stream struct {
	c       *conn
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

// startStream writes the header of a stream, starts it and leaves the connection to a
// fresh goroutine: this one's stack has grown.
func (x *exchange) startStream(resp *api.Response) verdict {
	c := x.c
	x.ctx.stopWatching()
	s := &stream{c: c, x: x, resp: resp, chunked: !x.http10}
	if duplex, ok := resp.Stream.(api.Duplex); ok {
		if err := x.mayNotUpgrade(); err != nil {
			c.StopStream(resp.Stream)
			return x.rejectUpgrade(resp, err)
		}
		s.duplex, s.chunked = duplex, false
	} else if x.req.Body != nil {
		s.discard = x.body.remaining() != 0
		x.body.seal()
	}
	s.keep = s.chunked && !s.discard && x.mayKeep(resp)
	err := s.begin()
	if err == nil && !x.head {
		// From here on the connection belongs to the stream: a pending read notices when the client
		// disconnects.
		if err = c.In.Resume(); err == nil {
			err = c.StartStream(resp, s)
		}
		if err == nil {
			c.Panics.Go(nil, "stream", s.wait)
			return handedOver
		}
		s.fail(err)
	}
	// Either nothing was started, or everything has ended.
	c.StopStream(resp.Stream)
	return x.finish(resp, s.written, s.keep, err)
}

// begin writes the header and gives back what an open stream does not need.
func (s *stream) begin() error {
	c := s.c
	s.x.beginFinal()
	buf := c.Buffer(edge.SmallBuffer)
	defer c.Buffers.Put(buf)
	if s.duplex != nil {
		buf.B = appendSwitch(buf.B, s.resp.Header)
	} else {
		f := framing{length: -1, chunked: s.chunked && !s.x.head, close: !s.keep}
		buf.B = s.x.appendHead(buf.B, s.resp.Status, s.resp.Header, f)
	}
	if _, err := c.Out.Write(buf.B); err != nil {
		return err
	}
	if s.discard {
		c.In.Release()
	}
	c.In.ReleaseEmpty()
	return nil
}

// wait is the stream's goroutine. It continues with the next request if the response was complete
// and the client may send one.
func (s *stream) wait() {
	c := s.c
	defer c.Contain()
	n, err := s.read()
	clean := s.closing.Load() && n == 0 && err != nil && edge.IsInterrupted(err)
	if !clean {
		// First, so that a write that is blocked fails and Stop need not wait for it.
		c.Abort()
	}
	c.StopStream(s.resp.Stream)
	written, err := s.finish(clean)
	v := s.x.finish(s.resp, written, clean && s.keep, err)
	if s.duplex != nil && clean && err == nil {
		c.Linger(c.Options.LingerTimeout)
	}
	if v != keepOpen || c.In.Resume() != nil || !c.AwaitRequest() {
		c.End()
		return
	}
	c.resume()
}

// read blocks until the client leaves, sends what it should not, or until it is interrupted.
func (s *stream) read() (n int, err error) {
	switch {
	case s.duplex != nil:
		return 0, s.receive()
	case s.c.In.Buf != nil:
		return 0, nil // the next request is here already
	case !s.discard:
		return s.c.NetConn.Read(s.one[:])
	}
	buf := s.c.Buffer(edge.SmallBuffer)
	defer s.c.Buffers.Put(buf)
	return 0, s.drop(buf.B[:cap(buf.B)])
}

// drop reads and discards until the client leaves or the reading is interrupted.
func (s *stream) drop(buf []byte) (err error) {
	for err == nil {
		_, err = s.c.NetConn.Read(buf)
	}
	return err
}

// receiveBuffer is the size of the read buffer of an idle Duplex, whose clients send little.
const receiveBuffer = 512

// receive passes on the bytes from the client of a Duplex, until it disconnects or the reading is
// interrupted.
func (s *stream) receive() (err error) {
	if br := s.c.In.Buf; br != nil {
		ahead, _ := br.Peek(br.Buffered())
		err = s.c.Receive(s.duplex, ahead)
		s.c.In.Release()
	}
	buf := make([]byte, receiveBuffer)
	for err == nil {
		var n int
		if n, err = s.c.NetConn.Read(buf); n > 0 && err == nil {
			err = s.c.Receive(s.duplex, buf[:n])
		}
	}
	if errors.Is(err, edge.ErrReceived) {
		return s.drop(buf)
	}
	return err
}

// finish writes the last chunk of a stream that ended well.
func (s *stream) finish(clean bool) (written int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if clean && s.chunked && s.err == nil {
		_, s.err = s.c.Out.Write([]byte(lastChunk))
	}
	return s.written, s.err
}

// fail ends a stream whose response cannot be completed.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.err == nil {
		s.err = err
	}
	s.c.Abort()
}

// WriteFrames implements api.StreamWriter: all frames in one chunk and, unless
// they are very many, in one write.
func (s *stream) WriteFrames(frames [][]byte) error {
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
		return edge.ErrStreamOver
	case size == 0:
		return nil
	}
	if s.c.OverShare() && !s.c.Out.TakesMore() {
		s.c.Metrics.SlowWatches.Inc()
		return s.breakLocked(edge.ErrSlow)
	}
	room := size + chunkOverhead
	if s.c.Out.IsSlow() {
		room = edge.SmallBuffer
	}
	w := collector{dst: &s.c.Out, buf: s.c.Buffer(room)}
	defer s.c.Buffers.Put(w.buf)
	if s.chunked {
		w.buf.B = appendChunkHead(w.buf.B, size)
	}
	for _, f := range frames {
		w.add(f)
	}
	if s.chunked {
		w.add(crlfcrlf[:2])
	}
	if err := w.flush(); err != nil {
		return s.breakLocked(err)
	}
	s.written += int64(size)
	return nil
}

// breakLocked ends a stream to which nothing can be written any more. The caller holds mu.
func (s *stream) breakLocked(err error) error {
	s.err = err
	s.c.Abort() // wakes wait
	return err
}

func (s *stream) Close() {
	if s.closing.CompareAndSwap(false, true) {
		s.c.In.Interrupt()
	}
}

// Abort implements api.StreamWriter: without the last chunk the client knows that the response is
// incomplete.
func (s *stream) Abort() {
	if s.closing.CompareAndSwap(false, true) {
		s.c.Abort() // wakes wait, which finds that this was no interrupt
	}
}
