package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

// Drain ends the open watches, spread evenly over the given time, and then the
// long-running responses that are forwarded. It returns when all have been told
// to end. Upgraded connections are left to the server.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) {
	g.Watches.Drain(ctx, over)
	g.forwarded.end()
}

// forwardedStreams are the forwarded long-running responses, so that they can be ended. It is safe
// for concurrent use.
type forwardedStreams struct {
	mu struct {
		sync.Mutex
		open map[*forwardedStream]api.StreamWriter
		over bool // those that still begin end at once
	}
}

// forwardedStream is one forwarded long-running response.
type forwardedStream struct {
	api.Stream
	owner *forwardedStreams
	over  bool // it ends as soon as it begins; guarded by mu of owner
}

func (f *forwardedStreams) wrap(s api.Stream) *forwardedStream {
	return &forwardedStream{Stream: s, owner: f}
}

// Start implements api.Stream.
func (s *forwardedStream) Start(w api.StreamWriter) {
	f := s.owner
	f.mu.Lock()
	if f.mu.open == nil {
		f.mu.open = make(map[*forwardedStream]api.StreamWriter)
	}
	f.mu.open[s] = w
	over := f.mu.over || s.over
	f.mu.Unlock()
	s.Stream.Start(w)
	if over {
		w.Close()
	}
}

// Stop implements api.Stream.
func (s *forwardedStream) Stop() {
	s.owner.mu.Lock()
	delete(s.owner.mu.open, s)
	s.owner.mu.Unlock()
	s.Stream.Stop()
}

// end ends the stream.
func (s *forwardedStream) end() {
	s.owner.mu.Lock()
	s.over = true
	w := s.owner.mu.open[s]
	s.owner.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

func (f *forwardedStreams) end() {
	f.mu.Lock()
	f.mu.over = true
	writers := make([]api.StreamWriter, 0, len(f.mu.open))
	for _, w := range f.mu.open {
		writers = append(writers, w)
	}
	f.mu.Unlock()
	for _, w := range writers {
		w.Close()
	}
}
