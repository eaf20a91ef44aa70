package h1

import (
	"sync"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// requestContext is the context of a request. It watches for the client's leaving only once
// somebody asks for Done, because that takes a goroutine: most requests are answered before a
// client could leave.
type requestContext struct {
	edge.Context
	x *exchange

	// mu guards what follows. It is taken before that of the body.
	mu sync.Mutex
	// watching is closed when the goroutine that watches has ended; nil without one.
	watching chan struct{}
	// wanted is set when somebody waits for the client's leaving; stopped when watching must not
	// begin any more, because the leaving is noticed in another way or the request is over.
	wanted, stopped bool
}

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} {
	done, first := r.Start()
	if first {
		r.mu.Lock()
		r.wanted = true
		r.mu.Unlock()
		r.watch()
	}
	return done
}

// watch starts the goroutine that reads ahead until something comes: the next request, which
// stays in the buffer, or the end. It is called when somebody waits for that, and when the body,
// which comes first, was read.
func (r *requestContext) watch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wanted || r.stopped || r.watching != nil || r.x.req.Body != nil && !r.x.body.wasRead() {
		return
	}
	in := &r.x.c.In
	in.Acquire()
	buf := in.Buf
	n := buf.Buffered() + 1
	if n > buf.Size() || in.Resume() != nil {
		return
	}
	ended := make(chan struct{})
	r.watching = ended
	in.Mode = edge.ReadWait
	panics := r.x.c.Panics
	go func() {
		defer panics.Contain("connection")
		defer close(ended)
		if _, err := buf.Peek(n); err != nil && !edge.IsInterrupted(err) {
			r.Cancel()
		}
	}()
}

// stopWatching takes the reading side back from the watching goroutine. Nothing
// is watched any more afterwards.
func (r *requestContext) stopWatching() {
	r.mu.Lock()
	r.stopped = true
	watching := r.watching
	r.watching = nil
	r.mu.Unlock()
	if watching == nil {
		return
	}
	r.x.c.In.Interrupt()
	<-watching
	_ = r.x.c.In.Resume()
}
