package upstream

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var errStalled = errors.New("the upstream's response stands still")

// guardedBody ends a response whose body stands still for too long while it is
// read. Its methods are called by one goroutine at a time.
type guardedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration // 0: none
	// alive, if set, tells the last sign of life of the connection: while that is
	// younger than limit, the body may stand still.
	alive func() time.Time
	// received, if set, counts the bytes that are read.
	received prometheus.Counter
	read     int64 // bytes so far
	// waits, if set, is told when a read waits, by the clock now.
	waits *waits
	now   func() time.Time
	// life, if set, ends the response also when the upstream is gone.
	life  *life
	timer *time.Timer

	mu struct {
		sync.Mutex
		reading  bool
		deadline time.Time
	}
}

// newGuardedBody guards body, of a request whose context is ctx with cancel.
func newGuardedBody(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, limit time.Duration) *guardedBody {
	return &guardedBody{ReadCloser: body, ctx: ctx, cancel: cancel, limit: limit}
}

// Read implements io.Reader. Its error is the reason for which the request was
// cancelled, if it was.
func (g *guardedBody) Read(p []byte) (int, error) {
	if g.limit > 0 {
		g.arm(time.Now().Add(g.limit))
		defer g.disarm()
	}
	if g.waits != nil {
		g.waits.begin(g.now().UnixNano())
	}
	n, err := g.ReadCloser.Read(p)
	if g.waits != nil {
		g.waits.end(g.now().UnixNano())
	}
	g.read += int64(n)
	if g.received != nil {
		g.received.Add(float64(n))
	}
	// Also io.EOF: a server that notices the cancellation may still get the end of
	// a chunked body through, which would look whole then.
	return n, causeOf(g.ctx, err)
}

func (g *guardedBody) arm(deadline time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reading, g.mu.deadline = true, deadline
	first := g.limit
	if g.life != nil && g.life.limit > 0 {
		first = min(first, g.life.limit/2)
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(first, g.expired)
	} else {
		g.timer.Reset(first)
	}
}

func (g *guardedBody) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.reading = false
	g.timer.Stop()
}

// expired runs on the timer, maybe late: for a read that has ended, while the
// next is under way.
func (g *guardedBody) expired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.reading {
		return
	}
	deadline := g.mu.deadline
	if g.alive != nil {
		if d := g.alive().Add(g.limit); d.After(deadline) {
			deadline = d
		}
	}
	left, reason := time.Until(deadline), errStalled
	if g.life != nil && g.life.limit > 0 {
		if l := g.life.left(g.mu.deadline.Add(-g.limit)); l < left {
			left, reason = l, errSilent
		}
	}
	if left > 0 {
		g.timer.Reset(left)
		return
	}
	g.cancel(reason)
}
