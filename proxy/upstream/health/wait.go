package health

import (
	"context"
	"sync"
	"time"
)

// Wait is a request that waits for the head of its response.
type Wait struct {
	d      *Detector
	cancel context.CancelCauseFunc
	began  time.Time
	most   time.Duration

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil when there is nothing to wait for
	over  bool        // guarded by mu: nothing is canceled any more
}

// reviewPeriod is how often a request that waits is reviewed.
const reviewPeriod = time.Second

// Await cancels a request with ErrSilent when the upstream is Silent, or when its connection is
// lost, and with ErrTimeout after most, unless that is 0. Done must be called when the wait is
// over.
func (d *Detector) Await(cancel context.CancelCauseFunc, most time.Duration) *Wait {
	w := &Wait{d: d, cancel: cancel, began: d.now(), most: most}
	limit := d.opts.SilenceTimeout
	first := min(limit/2, reviewPeriod)
	if limit == 0 || most > 0 && most < first {
		first = most
	}
	if first > 0 {
		w.mu.Lock() // the timer may fire before it is stored
		w.timer = time.AfterFunc(first, w.review)
		w.mu.Unlock()
	}
	return w
}

func (w *Wait) review() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	next := w.most
	if w.most > 0 {
		if next -= w.d.now().Sub(w.began); next <= 0 {
			w.cancel(ErrTimeout)
			return
		}
	}
	if w.d.opts.SilenceTimeout > 0 {
		left := w.d.patience(w.began)
		if left <= 0 || w.d.server.isLost(w.began) {
			w.cancel(ErrSilent)
			return
		}
		left = min(left, reviewPeriod)
		if w.most == 0 || left < next {
			next = left
		}
	}
	w.timer.Reset(next)
}

// Done ends the wait of a request with ctx. Without an err the upstream responded.
func (w *Wait) Done(ctx context.Context, err error) {
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	d, limit := w.d, w.d.opts.SilenceTimeout
	switch {
	case err == nil:
		d.Responded()
	case Unconnected(err):
		d.enter(Unreachable)
		d.suspect(w.began)
	case limit > 0 && d.silence(w.began) >= limit*3/4:
		// The client gave up first, and a probe was not answered either.
		d.silent()
	case ctx.Err() == nil || d.silence(w.began) >= limit/10:
		d.suspect(w.began)
	}
}
