package health

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var ErrStalled = errors.New("the upstream's response stands still")

// IdleReader ends a response whose body stands still for too long while it is
// read. Its methods are called by one goroutine at a time.
type IdleReader struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	// Limit is for how long the body may stand still, 0 for ever.
	Limit time.Duration
	// Alive, if set, tells the last sign of life of the connection: while that is
	// younger than Limit, the body may stand still.
	Alive func() time.Time
	// Received, if set, counts the bytes that are read.
	Received prometheus.Counter
	Count    int64 // bytes so far
	// Reads, if set, is told when a read waits, by the clock Now.
	Reads *Reads
	Now   func() time.Time
	// Detector, if set, ends the response also when the upstream is gone.
	Detector *Detector
	timer    *time.Timer

	mu struct {
		sync.Mutex
		reading  bool
		deadline time.Time
	}
}

// NewIdleReader guards body, of a request whose context is ctx with cancel.
func NewIdleReader(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, limit time.Duration) *IdleReader {
	return &IdleReader{ReadCloser: body, ctx: ctx, cancel: cancel, Limit: limit}
}

// Read implements io.Reader. Its error is the reason for which the request was
// cancelled, if it was.
func (g *IdleReader) Read(p []byte) (int, error) {
	if g.Limit > 0 {
		g.arm(time.Now().Add(g.Limit))
		defer g.disarm()
	}
	if g.Reads != nil {
		g.Reads.begin(g.Now().UnixNano())
	}
	n, err := g.ReadCloser.Read(p)
	if g.Reads != nil {
		g.Reads.end(g.Now().UnixNano())
	}
	g.Count += int64(n)
	if g.Received != nil {
		g.Received.Add(float64(n))
	}
	// Also io.EOF: a server that notices the cancellation may still get the end of
	// a chunked body through, which would look whole then.
	return n, Cause(g.ctx, err)
}

func (g *IdleReader) arm(deadline time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reading, g.mu.deadline = true, deadline
	first := g.Limit
	if g.Detector != nil && g.Detector.limit > 0 {
		first = min(first, g.Detector.limit/2)
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(first, g.expired)
	} else {
		g.timer.Reset(first)
	}
}

func (g *IdleReader) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reading = false
	g.timer.Stop()
}

// expired runs on the timer, maybe late: for a read that has ended, while the
// next is under way.
func (g *IdleReader) expired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.reading {
		return
	}
	deadline := g.mu.deadline
	if g.Alive != nil {
		if d := g.Alive().Add(g.Limit); d.After(deadline) {
			deadline = d
		}
	}
	left, reason := time.Until(deadline), ErrStalled
	if g.Detector != nil && g.Detector.limit > 0 {
		if l := g.Detector.left(g.mu.deadline.Add(-g.Limit)); l < left {
			left, reason = l, ErrSilent
		}
	}
	if left > 0 {
		g.timer.Reset(left)
		return
	}
	g.cancel(reason)
}
