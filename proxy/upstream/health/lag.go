package health

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lateFrom is from which delay on what feeds bring counts as late.
	lateFrom = time.Second
	// settleTime is how long feeds have at least, after the way is free again, to take what
	// it held back.
	settleTime = 250 * time.Millisecond
	// idleTime is how long a read must wait to say that there was nothing to be read.
	idleTime = time.Millisecond
)

// lag is for how long what the feeds have taken was under way. What a way held back
// arrives at once when it is free, the answers to pulses and pings with it; feeds need a
// moment to take it, during which what they hold is as old as before. So a measurement that
// is less than the one before counts when the feeds have taken what had come by then. It is
// safe for concurrent use.
type lag struct {
	now      func() time.Time // which does not jump
	measured func() time.Duration
	// taken reports whether feeds have taken all that had come at some time, in nanoseconds
	// of now.
	taken func(since int64) bool

	held atomic.Int64 // the delay that counts, 0 while nothing is late
	mu   sync.Mutex
	fell int64 // guarded by mu: since when less than held is measured, nanoseconds; 0: it is not
}

// delay is what counts now. It must be called now and then, for it is what notices a change.
func (l *lag) delay() time.Duration {
	measured := l.measured()
	if measured < lateFrom && l.held.Load() == 0 {
		return measured
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := time.Duration(l.held.Load()); measured < held && l.holds(held) {
		return held
	}
	l.fell = 0
	if measured < lateFrom {
		l.held.Store(0)
	} else {
		l.held.Store(int64(measured))
	}
	return measured
}

// holds reports whether held still counts although less is measured: until the feeds have
// taken what had come, but not for longer than the way was late. A feed that is behind for
// longer is so by itself.
func (l *lag) holds(held time.Duration) bool {
	now := l.now().UnixNano()
	if l.fell == 0 {
		l.fell = now
	}
	passed := time.Duration(now - l.fell)
	return passed < settleTime || passed < held && !l.taken(l.fell)
}

// Reads tells when who reads waits for something to come. One goroutine reads, others may ask.
type Reads struct {
	began atomic.Int64 // unix nanoseconds; 0: it does not wait
	ended atomic.Int64 // the last one that was of idleTime
}

func (w *Reads) begin(now int64) { w.began.Store(now) }

func (w *Reads) end(now int64) {
	if now-w.began.Load() >= int64(idleTime) {
		w.ended.Store(now)
	}
	w.began.Store(0)
}

// since reports whether there was, since then, nothing to be read.
func (w *Reads) since(then, now int64) bool {
	began := w.began.Load()
	return w.ended.Load() > then || began != 0 && now-began >= int64(idleTime)
}
