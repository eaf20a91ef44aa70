package edge

import (
	"io"
	"os"
	"sync"
	"time"
)

// http2Body is the body of an HTTP/2 request, with the deadlines that net/http's own
// has not. As an HTTP/1.1 body it is read by one goroutine at a time, which may still
// be at it when the response is complete.
type http2Body struct {
	r  io.ReadCloser
	sw *streamWriter

	// mu guards limit.
	mu    sync.Mutex
	limit time.Time

	timer *time.Timer // of the goroutine that reads
}

// SetReadDeadline bounds the reading of the whole body, see api.Request.
func (b *http2Body) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = t
	return nil
}

// Read implements io.Reader.
func (b *http2Body) Read(p []byte) (int, error) {
	timeout := b.timeout()
	if timeout <= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(timeout, b.sw.stopReading)
	} else {
		b.timer.Reset(timeout)
	}
	defer b.timer.Stop()
	return b.r.Read(p)
}

// timeout is how long the next bytes may take.
func (b *http2Body) timeout() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := b.sw.c.srv.o.BodyIdleTimeout
	if b.limit.IsZero() {
		return idle
	}
	return min(idle, time.Until(b.limit))
}
