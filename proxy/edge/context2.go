package edge

import (
	"context"
	"sync"
	"time"
)

// streamContext is the context of an HTTP/2 request, which is made when somebody asks
// for what takes one.
type streamContext struct {
	base context.Context

	// mu guards what follows.
	mu     sync.Mutex
	std    context.Context // made by the first Done
	cancel context.CancelFunc
	over   bool
}

// Deadline implements context.Context: there is none.
func (r *streamContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (r *streamContext) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.std == nil {
		r.std, r.cancel = context.WithCancel(r.base)
		if r.over {
			r.cancel()
		}
	}
	return r.std.Done()
}

// Err implements context.Context.
func (r *streamContext) Err() error {
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
func (r *streamContext) Value(key any) any {
	r.mu.Lock()
	parent := r.base
	if r.std != nil {
		parent = r.std
	}
	r.mu.Unlock()
	return parent.Value(key)
}

// end ends the context.
func (r *streamContext) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.cancel != nil {
		r.cancel()
	}
}
