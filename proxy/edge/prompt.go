package edge

import (
	"syscall"
	"time"
)

// While one client asks again and again as soon as it is answered, and nobody else
// asks, parking its goroutine between two requests costs a fifth of a small request:
// the thread looks for other work and sleeps, the poller's wakes, runs the goroutine
// and wakes another to look for more, and so on. Such a connection waits in a system
// call of its own thread for a moment before it is parked; the runtime hands the
// thread's processor to others if they need it (retake in runtime/proc.go).

const (
	// promptly is how soon a request comes after the answer before it, and how long
	// one is waited for.
	promptly = 500 * time.Microsecond
	// promptRow is how many requests must have come promptly, one after the other,
	// before one is waited for so: waiting in vain keeps the runtime's monitor awake.
	promptRow = 16
)

// prompt is what a connection knows of how promptly its client asks.
type prompt struct {
	row  int
	raw  syscall.RawConn
	poll func(fd uintptr) bool // nil where there is no such system call
	came bool                  // a request, while poll waited
}

// await waits for a request if one is to be expected at once.
func (p *prompt) await() {
	if p.row < promptRow || p.poll == nil {
		return
	}
	p.came = false
	if err := p.raw.Read(p.poll); err != nil || !p.came {
		p.row = 0
	}
}

// waited notes for how long the last request was waited for. alone says that it is the
// server's second in a row from this connection.
func (p *prompt) waited(d time.Duration, alone bool) {
	if d > promptly || !alone {
		p.row = 0
	} else if p.row < promptRow {
		p.row++
	}
}

// alone notes that c has something to do, nil for what is not a request over HTTP/1.1,
// and reports whether it had the last time, too.
func (s *Server) alone(c *conn) bool {
	if s.latest.Load() == c {
		return true
	}
	s.latest.Store(c)
	return false
}
