package edge

import (
	"context"
	"sync"
	"time"
)

// requestContext is the context of a request, which is made when somebody asks for what
// takes one.
type requestContext struct {
	base context.Context

	// mu guards what follows.
	mu     sync.Mutex
	std    context.Context // once there is one
	cancel context.CancelFunc
	over   bool
}

// Deadline implements context.Context: there is none.
func (r *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// start makes the standard context, unless that was done before: first tells. Who asks for
// what it returns is going to wait.
func (r *requestContext) start() (done <-chan struct{}, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first = r.std == nil; first {
		r.std, r.cancel = context.WithCancel(r.base)
		if r.over {
			r.cancel()
		}
	}
	return r.std.Done(), first
}

// Err implements context.Context.
func (r *requestContext) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.std != nil:
		return r.std.Err()
	case r.over:
		return context.Canceled
	}
	return r.base.Err()
}

// Value implements context.Context. It lets contexts made from this one find the
// standard context inside, so that they need no goroutine.
func (r *requestContext) Value(key any) any {
	r.mu.Lock()
	parent := r.base
	if r.std != nil {
		parent = r.std
	}
	r.mu.Unlock()
	return parent.Value(key)
}

// end ends the context.
func (r *requestContext) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.cancel != nil {
		r.cancel()
	}
}
