package health

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// State is the state of a Detector; see the diagram in the package comment.
type State int32

// The states of a Detector.
const (
	Reachable   State = iota // or not asked yet
	Suspect                  // a sign of life is overdue
	Unreachable              // no connection can be made, or probes fail
	Silent                   // there was no sign of life for SilenceTimeout
)

// Options of a Detector.
type Options struct {
	// SilenceTimeout is how long an upstream that is waited for may give no sign of life. With 0 it
	// never is Silent.
	SilenceTimeout time.Duration
	// PingInterval is the silence after which feed connections are pinged.
	PingInterval time.Duration
	// RequestTimeout bounds a heartbeat.
	RequestTimeout time.Duration
	Background
	// Probe asks the upstream for a sign of life, by RunProbe or by checks of several servers. It
	// does not wait.
	Probe func()
	// Heartbeat sends a small request on a feed connection and waits for the response.
	Heartbeat func(context.Context) error
	// Abandon sends all requests but feeds over new connections from now on; nil if there are several
	// servers, each of which package balance checks all the time.
	Abandon func()
}

// Detector distinguishes a slow upstream from a failed one. It is safe for concurrent use.
type Detector struct {
	opts   Options
	now    clock
	conns  *Conns
	server Server // if it is the only one
	lag    *lagMeter

	state atomic.Int32 // changed by enter
	mu    sync.Mutex
	since time.Time // guarded by mu: when state was entered

	responded atomic.Int64 // when the last response came, in nanoseconds
	prober    prober
}

// New returns the detector of an upstream of which nothing is known yet.
func New(o Options) *Detector {
	d := &Detector{opts: o, now: newClock()}
	d.conns = newConns(d.now, o.Log, o.PingInterval, d.signOfLife)
	d.server = Server{Probe: d.probe, abandon: o.Abandon}
	d.lag = &lagMeter{now: d.now, send: d.heartbeat, unanswered: d.conns.unanswered}
	return d
}

// Start begins to watch over the feed connections.
func (d *Detector) Start() {
	d.opts.Spawn(d.monitor)
}

// Now is a monotonic clock. All times that are compared with signs of life are of this clock.
func (d *Detector) Now() time.Time { return d.now() }

// Conns returns the upstream's open connections.
func (d *Detector) Conns() *Conns { return d.conns }

// Server returns what is known of the upstream's connections if it is a single server.
func (d *Detector) Server() *Server { return &d.server }

// State returns the current state.
func (d *Detector) State() State { return State(d.state.Load()) }

// Admit returns ErrSilent, and sends a probe, while the upstream is Silent.
func (d *Detector) Admit() error {
	if d.State() != Silent {
		return nil
	}
	d.probe()
	return ErrSilent
}

// Reachable reports whether the upstream can be reached, as far as is known without asking it, and
// since when it cannot.
func (d *Detector) Reachable() (ok bool, since time.Time) {
	if d.Admit() == nil && d.State() < Unreachable {
		return true, time.Time{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.State() < Unreachable { // meanwhile
		return true, time.Time{}
	}
	return false, d.since
}

// Responded records a response, of whatever status.
func (d *Detector) Responded() {
	d.responded.Store(d.now.nanos())
	d.signOfLife()
}

// signOfLife leads back to Reachable.
func (d *Detector) signOfLife() {
	if d.prober.failed.Load() != 0 {
		d.prober.failed.Store(0)
	}
	if d.State() != Reachable {
		d.enter(Reachable)
	}
}

// NoneReachable records that none of several servers can be reached. If some refuse connections at
// once, requests are still tried.
func (d *Detector) NoneReachable(rejected bool) {
	d.prober.hangs.Store(!rejected)
	d.enter(Unreachable)
}

// enter changes the state, unless the present state is more specific.
func (d *Detector) enter(next State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.State()
	if was == next || next != Reachable && next < was {
		return
	}
	d.state.Store(int32(next))
	d.since = d.now()
	switch {
	case next == Silent:
		d.opts.Log.Warn("the upstream gives no sign of life, requests that need it are answered 503 until it does", "silence", d.opts.SilenceTimeout)
	case was == Silent:
		d.opts.Log.Info("upstream recovered")
	}
}

// heard returns when the last sign of life came.
func (d *Detector) heard() time.Time {
	return d.now.at(max(d.responded.Load(), d.conns.heard.Load()))
}

// silence returns for how long there was no sign of life, at most since a moment.
func (d *Detector) silence(since time.Time) time.Duration {
	last := max(since.UnixNano(), d.responded.Load(), d.conns.heard.Load())
	return time.Duration(d.now.nanos() - last)
}

// suspect starts probes of the upstream until it gives a sign of life. The upstream has been silent
// since then, although a response was due.
func (d *Detector) suspect(since time.Time) {
	if d.opts.SilenceTimeout == 0 {
		return
	}
	d.enter(Suspect)
	d.prober.start(d, since)
}

// silent records that nothing was heard for too long.
func (d *Detector) silent() {
	d.enter(Silent)
	d.suspect(d.now())
}

// silenceLimit returns how much longer to wait before the upstream counts as Silent, or must be
// probed, for a request that has waited since the given time. It is not positive if the upstream is
// Silent.
func (d *Detector) silenceLimit(since time.Time) time.Duration {
	limit, silence := d.opts.SilenceTimeout, d.silence(since)
	switch {
	case silence >= limit:
		d.silent()
		return 0
	case silence >= limit/2:
		d.probe()
		return limit - silence
	}
	return limit/2 - silence
}

// monitor suspects the upstream when the feed connections are silent for longer than their pings
// allow, so that a frozen upstream is detected before a client needs it. It also closes lost
// connections, and sends heartbeats.
func (d *Detector) monitor() {
	pings, beat := d.opts.PingInterval, d.now()
	tick := time.NewTicker(max(pings/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-d.opts.Context.Done():
			return
		case <-tick.C:
		}
		d.lag.current()
		now, heard := d.now(), d.heard()
		d.conns.closeLost(heard)
		if d.conns.Feeds() == 0 {
			continue
		}
		if now.Sub(heard) > pings*3/2 {
			d.suspect(heard.Add(pings))
		}
		if now.Sub(beat) >= idleHeartbeat {
			beat = now
			d.lag.beat()
		}
	}
}

// Lag returns for how long what the feeds have read was under way. It has that measured if need be.
func (d *Detector) Lag() time.Duration {
	d.lag.beat()
	return d.lag.current()
}

// LinkLag returns how long data from the upstream to the feeds is currently in transit.
func (d *Detector) LinkLag() time.Duration { return d.lag.measured() }

// RTT returns the last round-trip time of a heartbeat, or the age of the one in flight if that is
// longer. known is false if none was answered yet.
func (d *Detector) RTT() (rtt time.Duration, known bool) {
	return d.lag.rtt(), d.lag.took.Load() != 0
}

// heartbeat measures a round trip on a feed connection. It does not open one to an upstream that gives
// no sign of life: if the link loses data, the handshake hangs, and the reflectors would wait for it
// when the link works again.
func (d *Detector) heartbeat(sent int64) {
	opens := d.conns.Feeds() == 0
	started := !(opens && d.State() != Reachable) && d.opts.Spawn(func() {
		ctx, cancel := context.WithTimeout(d.opts.Context, d.opts.RequestTimeout)
		defer cancel()
		d.lag.returned(sent, d.opts.Heartbeat(ctx) == nil)
	})
	if !started {
		d.lag.returned(sent, false)
	}
}

const (
	// probePeriod is the time between probes of an upstream that is not Reachable: about so soon its
	// recovery is noticed.
	probePeriod = 500 * time.Millisecond
	// probePause is the least time between two probes.
	probePause = 200 * time.Millisecond
	// failedProbes is how many probes in a row must fail, other than for want of a connection, before
	// the upstream is Unreachable: one may have met a single bad server behind a load balancer.
	failedProbes = 2
)

// prober probes an upstream.
type prober struct {
	running  atomic.Bool  // it probes until there is a sign of life
	last     atomic.Int64 // when the last probe began, unix nanoseconds
	inFlight atomic.Int64 // probes; those of several servers are not known
	failed   atomic.Int32 // probes in a row
	hangs    atomic.Bool  // the last one did not fail at once
}

// start probes until d is Reachable, unless that is done already. Nothing was heard since then.
func (p *prober) start(d *Detector, since time.Time) {
	if !p.running.CompareAndSwap(false, true) {
		return
	}
	started := d.opts.Spawn(func() {
		defer p.running.Store(false)
		p.run(d, since)
	})
	if !started {
		p.running.Store(false)
	}
}

func (p *prober) run(d *Detector, since time.Time) {
	p.hangs.Store(true)
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for d.State() != Reachable {
		d.probe()
		select {
		case <-d.opts.Context.Done():
			return
		case <-tick.C:
		}
		if p.hangs.Load() && d.State() != Reachable && d.silence(since) >= d.opts.SilenceTimeout {
			d.enter(Silent)
		}
	}
}

// probe sends a probe, unless one was sent just now. If bytes came since the last one was sent,
// that is waited for: on a slow link it waits behind data, and others would only be in its way.
func (d *Detector) probe() {
	now, last := d.now.nanos(), d.prober.last.Load()
	if d.prober.inFlight.Load() > 0 && d.heard().UnixNano() > last {
		return
	}
	if now-last >= int64(probePause) && d.prober.last.CompareAndSwap(last, now) {
		d.opts.Probe()
	}
}

// RunProbe has ask send a request over a new connection, because those that there are may be lost.
// It does not wait.
func (d *Detector) RunProbe(send func(context.Context) error) {
	d.opts.Spawn(func() {
		d.prober.inFlight.Add(1)
		defer d.prober.inFlight.Add(-1)
		ctx, cancel := context.WithTimeout(d.opts.Context, d.opts.SilenceTimeout/2)
		defer cancel()
		began := d.now()
		if send(ctx) != nil {
			d.probeFailed(began)
			return
		}
		d.server.ProbeResponded(began, d.now())
		d.Responded()
	})
}

// probeFailed records that a probe which began then was not answered.
func (d *Detector) probeFailed(began time.Time) {
	if d.heard().After(began) {
		return
	}
	if d.prober.failed.Add(1) == failedProbes {
		d.enter(Unreachable)
	}
	d.prober.hangs.Store(d.now().Sub(began) >= d.opts.SilenceTimeout/10)
}
