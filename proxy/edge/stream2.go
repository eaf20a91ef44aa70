package edge

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
)

// stream2 is a long-running response over HTTP/2. Its handler's goroutine waits
// while others write: net/http takes the response back when that returns.
type stream2 struct {
	c  *conn
	sw *streamWriter

	// closing is closed by Close or by a failed write; later writes fail.
	closing chan struct{}
	once    sync.Once
	aborted atomic.Bool

	// mu is held while writing and guards what follows.
	mu      sync.Mutex
	over    bool
	written int64
	err     error
	// unbuffered has room for nothing, so that frames are passed on one by one.
	unbuffered buffer
}

// serveStream2 writes the head, starts the stream and waits for its end.
func (c *conn) serveStream2(hr *http.Request, sw *streamWriter, resp *api.Response) {
	s := &stream2{c: c, sw: sw, closing: make(chan struct{})}
	head := hr.Method == http.MethodHead
	c.writeHead2(sw, resp.Status, resp.Header, -1, head)
	err := sw.Flush()
	if err == nil && !head {
		if err = c.srv.startStream(resp.Stream, s); err == nil {
			select {
			case <-hr.Context().Done():
			case <-s.closing:
			}
			if s.aborted.Load() {
				sw.reset() // a write that is under way ends
			}
		} else {
			sw.reset() // a write that is under way ends
		}
	}
	c.srv.stopStream(resp.Stream)
	written, writeErr := s.finish()
	sw.finish()
	if err == nil {
		err = writeErr
	}
	c.srv.done(resp, written, err)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// finish waits for a write that is under way. Nothing is written afterwards.
func (s *stream2) finish() (int64, error) {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.err == nil && s.aborted.Load() {
		s.err = errAborted
	}
	return s.written, s.err
}

// WriteFrames implements api.StreamWriter: all frames in one DATA frame, or as
// many as their size takes.
func (s *stream2) WriteFrames(frames [][]byte) error {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.over || s.isClosing():
		return errStreamOver
	case size == 0:
		return nil
	}
	s.c.srv.alone(nil)
	w := frameWriter{dst: s.sw, buf: &s.unbuffered}
	if !s.c.srv.buffers.short() {
		w.buf = s.c.srv.buffers.get(size)
		defer s.c.srv.buffers.put(w.buf)
	}
	for _, f := range frames {
		w.add(f)
	}
	w.flush()
	if w.err == nil {
		w.err = s.sw.Flush()
	}
	if w.err != nil {
		s.err = w.err
		s.Close()
		return s.err
	}
	s.written += int64(size)
	return nil
}

// Close implements api.StreamWriter.
func (s *stream2) Close() { s.once.Do(func() { close(s.closing) }) }

var errAborted = errors.New("the stream was aborted")

// Abort implements api.StreamWriter: the client gets a RST_STREAM.
func (s *stream2) Abort() {
	s.once.Do(func() {
		s.aborted.Store(true)
		close(s.closing)
	})
}

func (s *stream2) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}
