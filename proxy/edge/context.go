package edge

import (
	"context"
	"sync"
	"time"
)

// Context is the context of a request, without Done. It creates a standard context only for callers
// that need one.
type Context struct {
	Base context.Context

	mu sync.Mutex
	// The fields below are guarded by mu.

	std    context.Context // once there is one
	cancel context.CancelFunc
	over   bool
}

// Start makes the standard context if it does not exist yet; first reports whether this call made
// it. Callers that request its Done channel are about to wait.
func (r *Context) Start() (done <-chan struct{}, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first = r.std == nil; first {
		r.std, r.cancel = context.WithCancel(r.Base)
		if r.over {
			r.cancel()
		}
	}
	return r.std.Done(), first
}

// Deadline implements context.Context: there is none.
func (r *Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Err implements context.Context.
func (r *Context) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.std != nil:
		return r.std.Err()
	case r.over:
		return context.Canceled
	}
	return r.Base.Err()
}

// Value implements context.Context. It lets contexts made from this one find the
// standard context inside, so that they need no goroutine.
func (r *Context) Value(key any) any {
	r.mu.Lock()
	parent := r.Base
	if r.std != nil {
		parent = r.std
	}
	r.mu.Unlock()
	return parent.Value(key)
}

// Cancel ends the context.
func (r *Context) Cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.cancel != nil {
		r.cancel()
	}
}
