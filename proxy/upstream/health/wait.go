package health

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Wait is for the head of a response, or for more of a body. It cancels the request if that takes
// too long.
type Wait struct {
	// Timeout is for how long to wait, 0 for ever.
	Timeout time.Duration
	// Alive, if set, returns the last sign of life of the connection, from which Timeout counts.
	Alive func() time.Time
	// Detector, if set, cancels the request also when the upstream is Silent, or when the connection
	// is lost.
	Detector *Detector

	cancel context.CancelCauseFunc
	late   error // the cause after Timeout

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil when there was nothing to wait for
	began time.Time   // guarded by mu; zero while nothing is waited for
}

// reviewPeriod is how often a request that waits is reviewed.
const reviewPeriod = time.Second

// Await cancels a request with ErrSilent when the upstream is Silent, or when its connection is
// lost, and with ErrTimeout after most, unless that is 0. Done must be called when the wait is
// over.
func (d *Detector) Await(cancel context.CancelCauseFunc, most time.Duration) *Wait {
	w := &Wait{Detector: d, Timeout: most, cancel: cancel, late: ErrTimeout}
	w.start()
	return w
}

// silenceTimeout returns the Detector's silence timeout; 0 without a Detector.
func (w *Wait) silenceTimeout() time.Duration {
	if w.Detector == nil {
		return 0
	}
	return w.Detector.opts.SilenceTimeout
}

func (w *Wait) now() time.Time {
	if w.Detector == nil {
		return time.Now()
	}
	return w.Detector.now()
}

func (w *Wait) start() {
	first := w.Timeout
	if limit := w.silenceTimeout(); limit > 0 {
		review := min(limit/2, reviewPeriod)
		first = min(cmp.Or(first, review), review)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = w.now()
	switch {
	case first == 0:
	case w.timer == nil:
		w.timer = time.AfterFunc(first, w.review)
	default:
		w.timer.Reset(first)
	}
}

// stop ends the wait. It returns when that began.
func (w *Wait) stop() (began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	began, w.began = w.began, time.Time{}
	return began
}

// review runs on the timer, maybe late: for a wait that has ended, while the next is under way.
func (w *Wait) review() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return
	}
	next := w.Timeout
	if w.Timeout > 0 {
		alive := w.began
		if w.Alive != nil && w.Alive().After(alive) {
			alive = w.Alive()
		}
		if next -= w.now().Sub(alive); next <= 0 {
			w.cancel(w.late)
			return
		}
	}
	if w.silenceTimeout() > 0 {
		left := w.Detector.silenceLimit(w.began)
		if left <= 0 || w.Detector.server.isLost(w.began) {
			w.cancel(ErrSilent)
			return
		}
		left = min(left, reviewPeriod)
		next = min(cmp.Or(next, left), left)
	}
	w.timer.Reset(next)
}

// Done ends the wait of a request with ctx. Without an err the upstream responded.
func (w *Wait) Done(ctx context.Context, err error) {
	began, d, limit := w.stop(), w.Detector, w.silenceTimeout()
	switch {
	case err == nil:
		d.Responded()
	case Unconnected(err):
		d.enter(Unreachable)
		d.suspect(began)
	case limit > 0 && d.silence(began) >= limit*3/4:
		// The client gave up first, and a probe was not answered either.
		d.silent()
	case ctx.Err() == nil || d.silence(began) >= limit/10:
		d.suspect(began)
	}
}
