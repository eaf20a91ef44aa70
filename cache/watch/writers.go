package watch

import (
	"runtime"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/watchmux"
)

// writers runs the deliveries of streams. An idle watch has no goroutine: when events arrive, its
// stream is queued here and served by one of a few goroutines, whose stacks have grown to what a
// TLS write needs.
//
//	submit ---> ready ---> served
//	   \          ^
//	    > pacing -+  served a moment ago, under load
//
// A client that does not read blocks the goroutine that writes to it. When nothing has been taken
// from the queue for the time stall, more goroutines start. Slow clients therefore cost one
// goroutine each and delay the others by at most stall.
//
// A write costs about as much as its content. Under load, a stream that was just served waits a
// little, so that its next write carries everything that has arrived meanwhile; see pace.
//
// It is safe for concurrent use. Its goroutines end when there is nothing to do.
type writers struct {
	mu struct {
		sync.Mutex
		ready   fifo
		pacing  fifo // until stream.due
		pace    pace
		alarmed bool   // a timer will look at pacing
		served  uint64 // streams taken from ready so far
		active  int    // goroutines
		watched bool   // the stall timer is set
	}
	panics *contain.Panics
	stall  time.Duration
	base   int // goroutines that start without a stall
}

func newWriters(panics *contain.Panics) *writers {
	// Half of the processors: a write wakes a client, which may run here as well, and the reflector
	// that brings the events needs one, too.
	return &writers{panics: panics, stall: 5 * time.Millisecond, base: max(1, runtime.GOMAXPROCS(0)/2)}
}

// submit queues s. It never blocks.
func (p *writers) submit(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if s.due = p.mu.pace.due(now, s.served); s.due.After(now) {
		p.mu.pacing.push(s)
		p.alarmLocked(now)
		return
	}
	p.serveLocked(s)
}

// serveLocked makes s ready, and starts a goroutine for it unless that takes a stall.
func (p *writers) serveLocked(s *stream) {
	p.mu.ready.push(s)
	if p.mu.active >= p.base {
		p.watchLocked()
		return
	}
	p.startLocked()
}

func (p *writers) startLocked() {
	p.mu.active++
	p.panics.Go(nil, "watch", p.run)
}

// alarmLocked sets a timer for when the streams of pacing are due.
func (p *writers) alarmLocked(now time.Time) {
	if p.mu.alarmed || p.mu.pacing.len == 0 {
		return
	}
	p.mu.alarmed = true
	time.AfterFunc(p.mu.pacing.first.due.Sub(now), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.alarmed = false
		now := time.Now()
		for p.mu.pacing.len > 0 && !p.mu.pacing.first.due.After(now) {
			p.serveLocked(p.mu.pacing.pop())
		}
		p.alarmLocked(now)
	})
}

// watchLocked sets a timer that checks, after stall, whether anything was taken from the queue.
func (p *writers) watchLocked() {
	if p.mu.watched {
		return
	}
	p.mu.watched = true
	served := p.mu.served
	time.AfterFunc(p.stall, func() { p.relieve(served) })
}

func (p *writers) relieve(served uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.watched = false
	if p.mu.ready.len == 0 {
		return
	}
	if p.mu.served == served {
		// All goroutines are blocked by slow clients. Doubling their number makes room for the
		// others in a few steps, however many slow clients there are.
		for range min(p.mu.active, p.mu.ready.len) {
			p.startLocked()
		}
	}
	p.watchLocked()
}

// run serves the queue until it is empty.
func (p *writers) run() {
	var sc scratch
	for {
		s := p.take(&sc)
		if s == nil {
			return
		}
		s.run(&sc)
		sc.flushDue(p.panics)
	}
}

// take returns the next stream to serve. If there is none, it sends the queued frames before the
// goroutine ends.
func (p *writers) take(sc *scratch) *stream {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ready.len == 0 && len(sc.queued) > 0 {
		p.mu.Unlock()
		sc.flush(p.panics)
		p.mu.Lock()
	}
	if p.mu.ready.len == 0 {
		p.mu.active--
		return nil
	}
	s := p.mu.ready.pop()
	p.mu.served++
	p.mu.pace.count(now, s.served)
	return s
}

// pace limits how often each stream is served: after a delivery, the stream waits until it is
// served again. The wait grows with the number of streams, so that on average there is at most one
// write per paceWrite, and it never exceeds pacePause. With few watchers there is no wait. With a
// thousand watchers and frequent events, each stream gets the events of pacePause in one write.
type pace struct {
	begun        time.Time // of the current window of pacePause
	served, last int       // streams served in it and in the previous one
}

const (
	paceWrite = 40 * time.Microsecond
	pacePause = 40 * time.Millisecond
	// paceLeast is the shortest wait that is worth a timer.
	paceLeast = time.Millisecond
)

// count records that a stream is served which was last served at last.
func (p *pace) count(now, last time.Time) {
	if since := now.Sub(p.begun); since >= pacePause {
		p.last = p.served
		if since >= 2*pacePause {
			p.last = 0
		}
		p.served, p.begun = 0, now
	}
	if last.Before(p.begun) {
		p.served++
	}
}

// due returns when a stream may be served that was last served at last.
func (p *pace) due(now, last time.Time) time.Time {
	pause := min(time.Duration(max(p.served, p.last))*paceWrite, pacePause)
	if pause < paceLeast || now.Sub(last) >= pause/2 {
		return now
	}
	return last.Add(pause)
}

// fifo is a queue of streams. A stream is in one queue at most.
type fifo struct {
	first, last *stream
	len         int
}

func (q *fifo) push(s *stream) {
	if q.len == 0 {
		q.first = s
	} else {
		q.last.next = s
	}
	q.last = s
	q.len++
}

func (q *fifo) pop() *stream {
	s := q.first
	q.first, s.next = s.next, nil
	q.len--
	if q.len == 0 {
		q.last = nil
	}
	return s
}

// scratch is the memory of one goroutine that is reused by its deliveries.
type scratch struct {
	deliveries []watchmux.Delivery
	frames     form.Frames
	// queued are the streams whose frames wait to be sent together with those of other streams on
	// the same connection. since is when the first one was queued.
	queued []api.SharedWriter
	since  time.Time
}

// queuedTime and queuedStreams bound how long queued frames wait for others.
const (
	queuedTime    = 2 * time.Millisecond
	queuedStreams = 512
)

// write writes the frames, or queues them if the writer supports that.
func (sc *scratch) write(panics *contain.Panics, w api.StreamWriter) error {
	if shared, ok := w.(api.SharedWriter); ok && shared.QueueFrames(sc.frames.List()) {
		if len(sc.queued) == 0 {
			sc.since = time.Now()
		}
		sc.queued = append(sc.queued, shared)
		return nil
	}
	sc.flush(panics) // because this one may block
	return w.WriteFrames(sc.frames.List())
}

// flush sends the queued frames. A panic ends the stream that caused it: it is unknown how much of
// its frames was sent, so nothing may follow.
func (sc *scratch) flush(panics *contain.Panics) {
	for _, w := range sc.queued {
		if panics.Run("watch", w.Flush) != nil {
			_ = panics.Run("watch", w.Abort)
		}
	}
	clear(sc.queued)
	sc.queued = sc.queued[:0]
}

// flushDue sends the queued frames if they have waited long enough.
func (sc *scratch) flushDue(panics *contain.Panics) {
	if len(sc.queued) >= queuedStreams || len(sc.queued) > 0 && time.Since(sc.since) > queuedTime {
		sc.flush(panics)
	}
}
