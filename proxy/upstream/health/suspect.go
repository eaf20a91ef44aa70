package health

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is the time between probes of an upstream that is suspected to be away:
	// so soon, give or take, it is found again.
	lookEvery = 500 * time.Millisecond
	// awayAfter is how many probes in a row must fail, other than for want of a connection,
	// before the upstream counts as away: one may have met a single bad server behind a
	// balancer.
	awayAfter = 2
)

// lookout looks for an upstream that is suspected to be away until it gives a sign of
// life, whether or not somebody asks for it meanwhile.
//
//	          suspect                  nothing for limit, and no probe fails at once
//	trusted ----------> looked for --------------------------------------------------> gone
//	   ^                    |                                                            |
//	   +--------------------+------------------ a sign of life --------------------------+
//
// While probes fail at once (connection refused), requests do, too, and are tried: only
// of an upstream that is gone they are refused unsent.
type lookout struct {
	under  atomic.Bool  // a look is under way
	failed atomic.Int32 // probes in a row that failed
	slowly atomic.Bool  // the last one took its time for that
}

// suspect has the upstream looked for until it gives a sign of life. Nothing was heard of
// it since then, although it was asked.
func (l *Detector) suspect(since time.Time) {
	if l.limit == 0 || !l.lookout.under.CompareAndSwap(false, true) {
		return
	}
	if !l.Spawn(func() { l.look(since) }) {
		l.lookout.under.Store(false)
	}
}

// look probes until there is a sign of life.
func (l *Detector) look(since time.Time) {
	defer l.lookout.under.Store(false)
	began := l.now()
	l.lookout.slowly.Store(true)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		l.ask()
		select {
		case <-l.Context.Done():
			return
		case <-tick.C:
		}
		if l.heard().After(began) {
			l.present()
			l.isGone() // which it is not any more
			return
		}
		if l.lookout.slowly.Load() && l.silence(since) >= l.limit {
			l.leave()
		}
	}
}

// heard is when the last sign of life was.
func (l *Detector) heard() time.Time {
	return l.contacts.At(max(l.last.Load(), l.contacts.last.Load()))
}

// probeFailed records that a probe which began then brought nothing.
func (l *Detector) probeFailed(began time.Time) {
	if l.heard().After(began) {
		return
	}
	if l.lookout.failed.Add(1) == awayAfter {
		l.depart()
	}
	l.lookout.slowly.Store(l.now().Sub(began) >= l.limit/10)
}

// AllUnreachable records that none of several servers can be reached; refused tells that some refuse
// connections at once, and can be tried.
func (l *Detector) AllUnreachable(refused bool) {
	l.lookout.slowly.Store(!refused)
	l.depart()
}

// guard suspects the upstream when the connections of feeds are silent for longer than
// their pings allow, so that a frozen one is known before somebody needs it, and closes
// those that are dead. It calls looked after each look.
func (l *Detector) guard(ctx context.Context, pings time.Duration, looked func()) {
	tick := time.NewTicker(max(pings/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.contacts.look(pings)
		looked()
		l.bury(pings)
		l.conns.closeOvertaken(l.now())
		heard := l.heard()
		if l.contacts.Connections() > 0 && l.now().Sub(heard) > pings*3/2 {
			l.suspect(heard.Add(pings))
		}
	}
}
