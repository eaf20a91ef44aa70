package edge

import (
	"context"
	"sync"
	"time"
)

// requestContext is the context of an HTTP/1.1 request. It watches for the
// client's leaving only once somebody asks for Done, because that takes a
// goroutine: most requests are answered before a client could leave.
type requestContext struct {
	x    *exchange
	base context.Context

	// mu guards what follows.
	mu     sync.Mutex
	std    context.Context // made by the first Done
	cancel context.CancelFunc
	over   bool
	// watching is closed when the goroutine that watches has ended; nil without one.
	watching chan struct{}
	// watched says that watching began or never will: the body is still to be read
	// first, or the client's leaving is noticed in another way. stopped says that it
	// must not begin any more.
	watched, stopped bool
}

// Deadline implements context.Context: there is none.
func (r *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.std == nil {
		r.std, r.cancel = context.WithCancel(r.base)
		switch {
		case r.over:
			r.cancel()
		case !r.watched:
			r.watched = true
			r.watchLocked()
		}
	}
	return r.std.Done()
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

// watchLocked starts to watch for the client's leaving, once its body was read.
func (r *requestContext) watchLocked() {
	if r.x.req.Body == nil {
		r.startLocked()
		return
	}
	// Not under mu: a body that was read to its end calls back at once, for mu.
	go func() {
		defer r.x.c.srv.panics.Contain("connection")
		r.x.body.whenRead(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.stopped {
				r.startLocked()
			}
		})
	}()
}

// startLocked starts the goroutine that reads ahead until something comes: the
// next request, which stays in the buffer, or the end.
func (r *requestContext) startLocked() {
	in := &r.x.c.in
	in.acquire()
	br := in.br
	n := br.Buffered() + 1
	if n > br.Size() || in.resume() != nil {
		return
	}
	done, cancel := make(chan struct{}), r.cancel
	r.watching = done
	in.mode = readWait
	panics := r.x.c.srv.panics
	go func() {
		defer panics.Contain("connection")
		defer close(done)
		if _, err := br.Peek(n); err != nil && !interrupted(err) {
			cancel()
		}
	}()
}

// stopWatching takes the reading side back from the watching goroutine. Nothing
// is watched any more afterwards.
func (r *requestContext) stopWatching() {
	r.mu.Lock()
	r.watched, r.stopped = true, true
	watching := r.watching
	r.watching = nil
	r.mu.Unlock()
	if watching == nil {
		return
	}
	r.x.c.in.interrupt()
	<-watching
	_ = r.x.c.in.resume()
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
