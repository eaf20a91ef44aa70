package health

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IdleReader is a response body that ends, with the request, when it stalls while it is read. Its
// methods are called by one goroutine at a time.
type IdleReader struct {
	io.ReadCloser
	// Timeout is for how long the body may stall, 0 for ever.
	Timeout time.Duration
	// Alive, if set, returns the last sign of life of the connection: while that is younger than
	// Timeout the body may stall.
	Alive func() time.Time
	// Detector, if set, ends the body also when the upstream is Silent.
	Detector *Detector
	// Received, if set, counts the bytes.
	Received prometheus.Counter
	// Reads, if set, is told when a read waits.
	Reads *Reads

	Count  int64 // bytes so far
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu struct {
		sync.Mutex
		reading  bool
		deadline time.Time
	}
}

// NewIdleReader returns a reader of body, of a request whose context is ctx with cancel.
func NewIdleReader(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, timeout time.Duration) *IdleReader {
	return &IdleReader{ReadCloser: body, ctx: ctx, cancel: cancel, Timeout: timeout}
}

// Read implements io.Reader. Its error is why the request was canceled, if it was.
func (r *IdleReader) Read(p []byte) (int, error) {
	if r.Timeout > 0 {
		r.arm(time.Now().Add(r.Timeout))
		defer r.disarm()
	}
	if r.Reads != nil {
		r.Reads.begin()
	}
	n, err := r.ReadCloser.Read(p)
	if r.Reads != nil {
		r.Reads.end()
	}
	r.Count += int64(n)
	if r.Received != nil {
		r.Received.Add(float64(n))
	}
	// Also io.EOF: a server that notices the cancellation may still get the end of a chunked body
	// through, which would look complete then.
	return n, Cause(r.ctx, err)
}

func (r *IdleReader) arm(deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reading, r.mu.deadline = true, deadline
	first := r.Timeout
	if limit := r.silenceTimeout(); limit > 0 {
		first = min(first, limit/2)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(first, r.expired)
	} else {
		r.timer.Reset(first)
	}
}

func (r *IdleReader) disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reading = false
	r.timer.Stop()
}

// silenceTimeout is that of the Detector, 0 if there is none.
func (r *IdleReader) silenceTimeout() time.Duration {
	if r.Detector == nil {
		return 0
	}
	return r.Detector.opts.SilenceTimeout
}

// expired runs on the timer, maybe late: for a read that has ended, while the next is under way.
func (r *IdleReader) expired() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.reading {
		return
	}
	deadline := r.mu.deadline
	if r.Alive != nil {
		if d := r.Alive().Add(r.Timeout); d.After(deadline) {
			deadline = d
		}
	}
	left, reason := time.Until(deadline), ErrStalled
	if r.silenceTimeout() > 0 {
		if l := r.Detector.patience(r.mu.deadline.Add(-r.Timeout)); l < left {
			left, reason = l, ErrSilent
		}
	}
	if left > 0 {
		r.timer.Reset(left)
		return
	}
	r.cancel(reason)
}
