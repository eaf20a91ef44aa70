package upstream

import (
	"io"
	"net/url"
	"strconv"
	"sync"

	"github.com/kubeweir/kubeweir/internal/api"
)

// The buffer of a stream begins small, because most streams are idle, and grows while the upstream
// fills it.
const (
	minStreamBuffer = 2 << 10
	maxStreamBuffer = 64 << 10
)

// stream passes a long-running response on as it comes. Its goroutine is blocked reading the
// upstream's connection.
//
//	new --Start--> running --upstream ended, write failed--> over
//	  \                 \                                     /
//	   +-----Stop--------+----------------Stop---------------+--> stopped
type stream struct {
	x    *forwarding
	body io.Reader
	over chan struct{} // closed when nothing more is written

	mu struct {
		sync.Mutex
		started, stopped bool
	}
}

var _ api.Stream = (*stream)(nil)

func newStream(x *forwarding, body io.Reader) *stream {
	// The client has left when Stop is called: the context of the request may end when its handler
	// returns.
	x.detach()
	return &stream{x: x, body: body, over: make(chan struct{})}
}

// Start implements api.Stream.
func (s *stream) Start(w api.StreamWriter) {
	s.mu.Lock()
	if !s.mu.stopped {
		s.mu.started = s.x.c.spawn(func() { s.run(w) })
	}
	started := s.mu.started
	s.mu.Unlock()
	if !started {
		w.Abort() // stopped before it began, or the client is closed
	}
}

func (s *stream) run(w api.StreamWriter) {
	s.x.c.metrics.streams.Inc()
	defer s.x.c.metrics.streams.Dec()
	err := s.copy(w)
	// Before the writer is told, which may call Stop.
	close(s.over)
	s.x.end()
	if err == io.EOF { // Readers return it bare.
		w.Close()
	} else {
		w.Abort()
	}
}

// copy passes the body on until it ends: io.EOF if it was complete.
func (s *stream) copy(w api.StreamWriter) error {
	buf := make([]byte, minStreamBuffer)
	var frames [1][]byte
	for {
		n, err := s.body.Read(buf)
		if n > 0 {
			frames[0] = buf[:n]
			if err := w.WriteFrames(frames[:]); err != nil {
				return err
			}
		}
		if err != nil {
			if err != io.EOF && !s.isStopped() { // Readers return it bare.
				return s.x.broke(err)
			}
			return err
		}
		if n == len(buf) && n < maxStreamBuffer {
			buf = make([]byte, min(4*n, maxStreamBuffer))
		}
	}
}

func (s *stream) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopped
}

// Stop implements api.Stream. It may also be called instead of Start.
func (s *stream) Stop() {
	s.mu.Lock()
	s.mu.stopped = true
	started := s.mu.started
	s.mu.Unlock()
	s.x.end()
	if started {
		<-s.over
	}
}

// follows reports whether the query asks for a log to be followed.
func follows(query string) bool {
	values, _ := url.ParseQuery(query)
	follow, err := strconv.ParseBool(values.Get("follow"))
	return err == nil && follow
}
