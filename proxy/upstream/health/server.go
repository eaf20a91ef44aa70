package health

import (
	"sync/atomic"
	"time"
)

// Standing is the health of one of several API servers; lower is better.
//
//	             no connection
//	  +--------------------------------> Down -------------+
//	  |                                                    | it responds again
//	Ready <--- /readyz says so ------ NotReady <-----------+ (if /readyz says so,
//	  |                                 ^                  |  it is Ready at once)
//	  +-- /readyz fails, shutting down -+                  |
//	  |                                                    |
//	  +-- no sign of life for a time --> Unresponsive -----+
type Standing int32

// The standings of a server.
const (
	Ready        Standing = iota // or not asked yet
	NotReady                     // it responds, but is starting, shutting down or in trouble
	Down                         // no connection can be made
	Unresponsive                 // there was no sign of life for too long
)

// String implements fmt.Stringer.
func (s Standing) String() string { return [...]string{"ready", "not ready", "down", "silent"}[s] }

// Server is the state of one API server: its standing, if it is one of several, and which
// connections to it are lost. It is safe for concurrent use.
type Server struct {
	// Probe probes the server. It does not wait.
	Probe   func()
	abandon func()

	standing   atomic.Int32
	contact    atomic.Int64 // last sign of life
	readySince atomic.Int64 // when it became Ready again; 0: it always was

	// When the last probe that was answered began, and when it was answered.
	probeBegan, probeResponded atomic.Int64
	// Connections from before lostBefore are lost.
	lostBefore atomic.Int64
}

// Standing returns the standing that checks of the server have found.
func (s *Server) Standing() Standing { return Standing(s.standing.Load()) }

// Enter changes the standing. It returns the former one, and false if the present one is more
// specific.
func (s *Server) Enter(next Standing, now time.Time) (was Standing, changed bool) {
	was = s.Standing()
	if was == next || was == Unresponsive && next == Down {
		return was, false
	}
	if next == Ready {
		s.readySince.Store(now.UnixNano())
	}
	s.standing.Store(int32(next))
	return was, true
}

// ReadySince returns when the server became Ready again, in nanoseconds; 0 if it always was.
func (s *Server) ReadySince() int64 { return s.readySince.Load() }

// Contact records a sign of life.
func (s *Server) Contact(now time.Time) { s.contact.Store(now.UnixNano()) }

// HeardSince reports whether there was a sign of life since then.
func (s *Server) HeardSince(then time.Time) bool { return s.contact.Load() >= then.UnixNano() }

// ProbeResponded records that a probe which began then, over a connection that works, was answered.
func (s *Server) ProbeResponded(began, now time.Time) {
	s.probeResponded.Store(now.UnixNano())
	s.probeBegan.Store(began.UnixNano())
}

// isLost reports whether a request that began then, and still waits, is on a lost connection.
func (s *Server) isLost(began time.Time) bool { return began.UnixNano() < s.lostBefore.Load() }

// Grace is how much later than on another connection a response may come on one that is not lost.
const Grace = time.Second
