package health

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// probePause is the least time between two probes.
const probePause = 200 * time.Millisecond

// Options of a Detector.
type Options struct {
	// SilenceTimeout is how long an upstream that is waited for may give no sign of life before it
	// counts as gone. With 0 it never does.
	SilenceTimeout time.Duration
	// PingInterval is the silence after which the connections of feeds are pinged.
	PingInterval time.Duration
	// RequestTimeout bounds a heartbeat.
	RequestTimeout time.Duration
	// Log takes what happens to the upstream; nil for nothing.
	Log *slog.Logger
	// Context ends with the upstream's client, and Spawn runs what ends with it; false, when that is
	// over.
	Context context.Context
	Spawn   func(func()) bool
	// Probe asks for a sign of life, by RunProbe, or by looks at several servers.
	Probe func()
	// Beat sends a small request on the connections of feeds, and returns when it was answered.
	Beat func(context.Context) error
	// Abandon lets requests go over new connections. Several servers are looked at all the time; what
	// connections they have besides those of feeds is judged by that, and there is no Abandon.
	Abandon func()
}

// New returns the detector of an upstream of which nothing is known yet.
func New(o Options) *Detector {
	now := steady()
	l := &Detector{
		Options: o, limit: o.SilenceTimeout, contacts: newFeeds(now), conns: NewConns(), now: now, log: o.Log,
	}
	l.dead.Ask, l.dead.abandon = l.ask, o.Abandon
	l.pulse = &Heartbeat{now: now, ask: l.beat}
	l.late = &lag{
		now:      now,
		measured: l.MeasuredLag,
		taken:    func(since int64) bool { return l.contacts.taken(since, o.PingInterval) },
	}
	return l
}

// Start begins to look after the connections of feeds.
func (l *Detector) Start() {
	l.Spawn(func() { l.guard(l.Context, l.PingInterval, func() { l.late.delay() }) })
	l.Spawn(func() { l.pulse.keep(l.Context, l.contacts) })
}

// Now is a clock that does not jump, of all that is compared with signs of life.
func (l *Detector) Now() time.Time { return l.now() }

// Conns are the upstream's open connections.
func (l *Detector) Conns() *Conns { return l.conns }

// Feeds are the connections of feeds.
func (l *Detector) Feeds() *Feeds { return l.contacts }

// Lost is what is known of lost connections to a single server.
func (l *Detector) Lost() *LostConns { return &l.dead }

// IsSilent reports whether the upstream gives no sign of life.
func (l *Detector) IsSilent() bool { return l.gone.Load() != 0 }

// Detector tells an upstream that is slow from one that is gone: a request may take its
// time as long as the upstream gives signs of life, to it or to others. Any answer is
// one, and any byte on the connections of feeds, which are pinged. Where there is none
// for half of limit, it is asked for one; after limit the upstream is gone, requests
// that wait for it end, and new ones are not sent before it is back.
//
// A suspicion, however it came about, has it looked for until there is a sign (lookout),
// so that it is known to be gone, and to be back, without anybody waiting for that.
//
// It is safe for concurrent use. With limit 0 the upstream never is gone.
type Detector struct {
	Options
	limit    time.Duration
	contacts *Feeds
	conns    *Conns           // of HTTP/2
	now      func() time.Time // which does not jump: nothing is silent because a clock was set
	log      *slog.Logger
	lookout  lookout
	dead     LostConns
	pulse    *Heartbeat
	late     *lag

	last   atomic.Int64 // answer, unix nanoseconds
	gone   atomic.Int64 // since when the upstream is known to be gone; 0: it is not
	probed atomic.Int64 // when the last probe began
	probes atomic.Int64 // how many are under way, where that is known
	away   atomic.Int64 // since when no connection can be made, or probes fail; 0: that is not known
}

// Answered records an answer.
func (l *Detector) Answered() {
	l.last.Store(l.now().UnixNano())
	l.present()
	if since := l.gone.Load(); since != 0 {
		l.back(since)
	}
}

// present forgets that connections failed.
func (l *Detector) present() {
	if l.away.Load() != 0 {
		l.away.Store(0)
	}
	if l.lookout.failed.Load() != 0 {
		l.lookout.failed.Store(0)
	}
}

// depart records that no connection can be made.
func (l *Detector) depart() { l.away.CompareAndSwap(0, l.now().UnixNano()) }

// leave records that the upstream is gone.
func (l *Detector) leave() {
	if l.gone.Swap(l.now().UnixNano()) == 0 {
		l.log.Warn("the upstream gives no sign of life, requests that need it are answered 503 until it does", "silence", l.limit)
	}
	l.suspect(l.now())
}

func (l *Detector) back(since int64) {
	if l.gone.CompareAndSwap(since, 0) {
		l.log.Info("upstream recovered")
	}
}

// Admit returns ErrSilent while the upstream is known to be gone, and looks for it then.
func (l *Detector) Admit() error {
	if l.isGone() {
		return ErrSilent
	}
	return nil
}

func (l *Detector) isGone() bool {
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
func (l *Detector) silence(since time.Time) time.Duration {
	last := max(since.UnixNano(), l.last.Load(), l.contacts.last.Load())
	return time.Duration(l.now().UnixNano() - last)
}

// left is how long to wait still before the upstream counts as gone, or is to be asked
// for a sign of life, for somebody who waits since a moment. It is not positive when
// the upstream is gone.
func (l *Detector) left(since time.Time) time.Duration {
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
func (l *Detector) ask() {
	now, last := l.now().UnixNano(), l.probed.Load()
	if l.probes.Load() > 0 && l.heard().UnixNano() > last {
		return
	}
	if now-last >= int64(probePause) && l.probed.CompareAndSwap(last, now) {
		l.Probe()
	}
}

// Wait is a request that waits for the head of its answer.
type Wait struct {
	life   *Detector
	cancel context.CancelCauseFunc
	began  time.Time
	most   time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil when there is nothing to wait for; guarded by mu
	over  bool        // nothing is cancelled any more; guarded by mu
}

// waitStep is how often a request that waits is looked at.
const waitStep = time.Second

// Await ends a request that waits for the head of its answer: by cancel, when the
// upstream is gone, or after most, unless that is 0. Done must be called when the
// request is over.
func (l *Detector) Await(cancel context.CancelCauseFunc, most time.Duration) *Wait {
	w := &Wait{life: l, cancel: cancel, began: l.now(), most: most}
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

func (w *Wait) expired() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	next := w.life.limit
	if w.most > 0 {
		left := w.most - w.life.now().Sub(w.began)
		if left <= 0 {
			w.cancel(ErrTimeout)
			return
		}
		next = left
	}
	if w.life.limit > 0 {
		left := w.life.left(w.began)
		if left <= 0 || w.life.outlived(w.began) {
			w.cancel(ErrSilent)
			return
		}
		left = min(left, waitStep)
		if w.most == 0 || left < next {
			next = left
		}
	}
	w.timer.Reset(next)
}

// Done ends the waiting for a request with ctx; without an err the upstream answered.
func (w *Wait) Done(ctx context.Context, err error) {
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	switch l := w.life; {
	case err == nil:
		l.Answered()
	case Unconnected(err):
		l.depart()
		l.suspect(w.began)
	case l.limit > 0 && l.silence(w.began) >= l.limit*3/4:
		// Whoever asked gave up first, and a probe was in vain.
		l.leave()
	case ctx.Err() == nil || l.silence(w.began) >= l.limit/10:
		l.suspect(w.began)
	}
}

// RunProbe asks the upstream for anything, by ask, which uses a connection of its own: those that
// there are may be dead while the way to the upstream is open again.
func (l *Detector) RunProbe(ask func(context.Context) error) {
	l.Spawn(func() {
		l.probes.Add(1)
		defer l.probes.Add(-1)
		ctx, cancel := context.WithTimeout(l.Context, l.limit/2)
		defer cancel()
		began := l.now()
		if err := ask(ctx); err != nil {
			l.probeFailed(began)
			return
		}
		l.dead.Prove(began, l.now())
		l.Answered()
	})
}
