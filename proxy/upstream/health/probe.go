package health

import (
	"context"
	"sync/atomic"
	"time"
)

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

// probe sends a probe, unless one was sent just now. If bytes came since the last one was sent, that is
// waited for: on a slow link it waits behind data, and others would only be in its way.
func (d *Detector) probe() {
	now, last := d.now().UnixNano(), d.prober.last.Load()
	if d.prober.inFlight.Load() > 0 && d.heard().UnixNano() > last {
		return
	}
	if now-last >= int64(probePause) && d.prober.last.CompareAndSwap(last, now) {
		d.opts.Probe()
	}
}

// RunProbe has ask send a request over a new connection, because those that there are may be lost. It
// does not wait.
func (d *Detector) RunProbe(ask func(context.Context) error) {
	d.opts.Spawn(func() {
		d.prober.inFlight.Add(1)
		defer d.prober.inFlight.Add(-1)
		ctx, cancel := context.WithTimeout(d.opts.Context, d.opts.SilenceTimeout/2)
		defer cancel()
		began := d.now()
		if ask(ctx) != nil {
			d.probeFailed(began)
			return
		}
		d.server.ProbeAnswered(began, d.now())
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
