package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// errSilent says that nothing is heard of the upstream any more.
var errSilent = errors.New("the upstream gives no sign of life")

// probePause is the least time between two probes.
const probePause = 200 * time.Millisecond

// life tells an upstream that is slow from one that is gone: a request may take its
// time as long as the upstream gives signs of life, to it or to others. Any answer is
// one, and any byte on the connections of feeds, which are pinged. Where there is none
// for half of limit, it is asked for one; after limit the upstream is gone, requests
// that wait for it end, and new ones are not sent before it is back.
//
// A suspicion, however it came about, has it looked for until there is a sign (lookout),
// so that it is known to be gone, and to be back, without anybody waiting for that.
//
// It is safe for concurrent use. With limit 0 the upstream never is gone.
type life struct {
	limit    time.Duration
	contacts *contacts
	conns    *openConns       // of HTTP/2
	now      func() time.Time // which does not jump: nothing is silent because a clock was set
	log      *slog.Logger
	// probe asks for a sign of life, in a goroutine of its own.
	probe func()
	// spawn runs what ends with ctx; false, when that is over.
	spawn   func(func()) bool
	ctx     context.Context
	lookout lookout
	dead    dead

	last   atomic.Int64 // answer, unix nanoseconds
	gone   atomic.Int64 // since when the upstream is known to be gone; 0: it is not
	probed atomic.Int64 // when the last probe began
	probes atomic.Int64 // how many are under way, where that is known
	away   atomic.Int64 // since when no connection can be made, or probes fail; 0: that is not known
}

// sign records an answer.
func (l *life) sign() {
	l.last.Store(l.now().UnixNano())
	l.present()
	if since := l.gone.Load(); since != 0 {
		l.back(since)
	}
}

// present forgets that connections failed.
func (l *life) present() {
	if l.away.Load() != 0 {
		l.away.Store(0)
	}
	if l.lookout.failed.Load() != 0 {
		l.lookout.failed.Store(0)
	}
}

// depart records that no connection can be made.
func (l *life) depart() { l.away.CompareAndSwap(0, l.now().UnixNano()) }

// leave records that the upstream is gone.
func (l *life) leave() {
	if l.gone.Swap(l.now().UnixNano()) == 0 {
		l.log.Warn("the upstream gives no sign of life, requests that need it are answered 503 until it does", "silence", l.limit)
	}
	l.suspect(l.now())
}

func (l *life) back(since int64) {
	if l.gone.CompareAndSwap(since, 0) {
		l.log.Info("upstream recovered")
	}
}

// isGone reports whether the upstream is known to be gone, and looks for it then.
func (l *life) isGone() bool {
	since := l.gone.Load()
	if since == 0 {
		return false
	}
	if l.contacts.last.Load() > since {
		l.back(since)
		return false
	}
	l.ask()
	return true
}

// silence is for how long there was no sign of life, at most since a moment.
func (l *life) silence(since time.Time) time.Duration {
	last := max(since.UnixNano(), l.last.Load(), l.contacts.last.Load())
	return time.Duration(l.now().UnixNano() - last)
}

// left is how long to wait still before the upstream counts as gone, or is to be asked
// for a sign of life, for somebody who waits since a moment. It is not positive when
// the upstream is gone.
func (l *life) left(since time.Time) time.Duration {
	silence := l.silence(since)
	switch {
	case silence >= l.limit:
		l.leave()
		return 0
	case silence >= l.limit/2:
		l.ask()
		return l.limit - silence
	}
	return l.limit/2 - silence
}

// ask sends a probe, unless one was sent just now. While bytes come one that is under way is
// waited for: on a slow link it waits its turn, and others would only be in its way.
func (l *life) ask() {
	now, last := l.now().UnixNano(), l.probed.Load()
	if l.probes.Load() > 0 && l.heard().UnixNano() > last {
		return
	}
	if now-last >= int64(probePause) && l.probed.CompareAndSwap(last, now) {
		l.probe()
	}
}

// wait ends a request that waits for the head of its answer: by cancel, when the
// upstream is gone, or after most, unless that is 0. stop must be called when the
// request is over.
type wait struct {
	life   *life
	cancel context.CancelCauseFunc
	began  time.Time
	most   time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil when there is nothing to wait for; guarded by mu
	over  bool        // nothing is cancelled any more; guarded by mu
}

// waitStep is how often a request that waits is looked at.
const waitStep = time.Second

func (l *life) wait(cancel context.CancelCauseFunc, most time.Duration) *wait {
	w := &wait{life: l, cancel: cancel, began: l.now(), most: most}
	first := min(l.limit/2, waitStep)
	if l.limit == 0 || most > 0 && most < first {
		first = most
	}
	if first > 0 {
		w.mu.Lock() // the timer may run out before it is stored
		w.timer = time.AfterFunc(first, w.expired)
		w.mu.Unlock()
	}
	return w
}

func (w *wait) expired() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	next := w.life.limit
	if w.most > 0 {
		left := w.most - w.life.now().Sub(w.began)
		if left <= 0 {
			w.cancel(errHeadTimeout)
			return
		}
		next = left
	}
	if w.life.limit > 0 {
		left := w.life.left(w.began)
		if left <= 0 || w.life.outlived(w.began) {
			w.cancel(errSilent)
			return
		}
		left = min(left, waitStep)
		if w.most == 0 || left < next {
			next = left
		}
	}
	w.timer.Reset(next)
}

// stop ends the waiting for a request with ctx; without an err the upstream answered.
func (w *wait) stop(ctx context.Context, err error) {
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	switch l := w.life; {
	case err == nil:
		l.sign()
	case unconnected(err):
		l.depart()
		l.suspect(w.began)
	case l.limit > 0 && l.silence(w.began) >= l.limit*3/4:
		// Whoever asked gave up first, and a probe was in vain.
		l.leave()
	case ctx.Err() == nil || l.silence(w.began) >= l.limit/10:
		l.suspect(w.began)
	}
}

// once is for what may be asked as nobody, too: that the gateway has no credentials for the time
// being says nothing of the upstream.
func (c *Client) once() http.RoundTripper {
	if c.plugin.Stuck() {
		return c.anonymousOnce
	}
	return c.ownOnce
}

// probe asks the upstream for anything, on a connection of its own: those that there
// are may be dead while the way to the upstream is open again.
func (c *Client) probe() {
	c.spawn(func() {
		c.life.probes.Add(1)
		defer c.life.probes.Add(-1)
		ctx, cancel := context.WithTimeout(c.ctx, c.limits.SilenceTimeout/2)
		defer cancel()
		req := (&http.Request{
			Method: http.MethodGet, URL: c.resourceURL("/version", nil), Host: c.base.Host,
			Header: http.Header{"User-Agent": {c.agent}}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}).WithContext(ctx)
		began := c.life.now()
		resp, err := c.once().RoundTrip(req)
		if err != nil {
			c.life.probeFailed(began)
			return
		}
		_ = resp.Body.Close()
		c.life.dead.prove(began, c.life.now())
		c.life.sign()
	})
}
