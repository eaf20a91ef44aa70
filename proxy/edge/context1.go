package edge

// watchedContext is the context of an HTTP/1.1 request. It watches for the
// client's leaving only once somebody asks for Done, because that takes a
// goroutine: most requests are answered before a client could leave.
type watchedContext struct {
	requestContext
	x *exchange

	// What follows is guarded by mu.

	// watching is closed when the goroutine that watches has ended; nil without one.
	watching chan struct{}
	// watched says that watching began or never will: the body is still to be read
	// first, or the client's leaving is noticed in another way. stopped says that it
	// must not begin any more.
	watched, stopped bool
}

// Done implements context.Context.
func (r *watchedContext) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.makeLocked() && !r.over && !r.watched {
		r.watched = true
		r.watchLocked()
	}
	return r.std.Done()
}

// watchLocked starts to watch for the client's leaving, once its body was read.
func (r *watchedContext) watchLocked() {
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
func (r *watchedContext) startLocked() {
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
func (r *watchedContext) stopWatching() {
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
