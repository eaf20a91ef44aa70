package proxy

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Drain ends the open watches, spread evenly over the given time, and then the
// long-running responses that are forwarded. Upgraded connections are left to the server.
func (g *Gateway) Drain(ctx context.Context, over time.Duration) {
	g.Watches.Drain(ctx, over)
	g.forwarded.cancel()
}

// forwardedStreams ends the forwarded long-running responses once ctx is canceled. Those that begin
// afterwards end at once.
type forwardedStreams struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newForwardedStreams() (f forwardedStreams) {
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// forwardedStream is one forwarded long-running response. Calling end ends it.
type forwardedStream struct {
	api.Stream
	ctx    context.Context
	end    context.CancelFunc
	detach func() bool // from ctx; nil before Start
}

func (f *forwardedStreams) wrap(s api.Stream) *forwardedStream {
	ctx, end := context.WithCancel(f.ctx)
	return &forwardedStream{Stream: s, ctx: ctx, end: end}
}

// Start implements api.Stream.
func (s *forwardedStream) Start(w api.StreamWriter) {
	s.detach = context.AfterFunc(s.ctx, w.Close)
	s.Stream.Start(w)
}

// Stop implements api.Stream.
func (s *forwardedStream) Stop() {
	if s.detach != nil {
		s.detach()
	}
	s.end()
	s.Stream.Stop()
}
