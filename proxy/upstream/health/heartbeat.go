package health

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pulsePeriod is the least time between two measurements of the way, and how often it
	// is measured while somebody wants to know.
	pulsePeriod = time.Second
	// pulseIdle is how often it is measured while nobody does, so that who then comes is
	// told at once.
	pulseIdle = 5 * time.Second
	// pulseMemory is how long a measurement says something.
	pulseMemory = 15 * time.Second
	// maxPulses is how many measurements are under way at most.
	maxPulses = 8
)

// Heartbeat measures for how long what the upstream sends is under way. On a slow link bytes
// queue up for half a minute and more, and every one of them is a sign of life; a small
// request on the connections of feeds waits its turn behind them. While one waits others
// follow it, for the queue may grow: the delay is known to an eighth of it. It is safe for
// concurrent use.
//
// It is the way that is measured, not the server: what a kube-apiserver's watch cache is
// behind its store cannot be known from outside, for events have no time of their own, and
// the clocks of objects are other machines'.
type Heartbeat struct {
	now func() time.Time // which does not jump
	// ask sends a request in a goroutine of its own and then calls ended with the time of
	// the call.
	ask func(sent int64)

	// All times are unix nanoseconds.
	next   atomic.Int64 // when the next one is due
	oldest atomic.Int64 // when the oldest that is under way was sent, 0 for none
	took   atomic.Int64 // the last one that was answered

	mu       sync.Mutex
	underWay []int64 // guarded by mu: when they were sent, rising; maxPulses at most
	newest   int64   // guarded by mu: when the one that took is of was sent
	ending   int64   // guarded by mu: when the last one was answered
}

// steady is a clock that goes on from now, whatever is made of the time of day: set back, that
// would have nothing measured until it has caught up.
func steady() func() time.Time {
	begun := time.Now()
	return func() time.Time { return begun.Add(time.Since(begun)) }
}

// measured is what was measured last, or for how long an answer has been waited for if
// that is more.
func (p *Heartbeat) measured() time.Duration {
	took := p.took.Load()
	if oldest := p.oldest.Load(); oldest != 0 {
		took = max(took, p.now().UnixNano()-oldest)
	}
	return time.Duration(took)
}

// delay is measured, and sees to it that there is a measurement.
func (p *Heartbeat) delay() time.Duration {
	if now := p.now().UnixNano(); now >= p.next.Load() {
		p.begin(now)
	}
	return p.measured()
}

// begin measures, unless somebody else does just now, or enough is under way.
func (p *Heartbeat) begin(now int64) {
	p.mu.Lock()
	if now < p.next.Load() || len(p.underWay) == maxPulses {
		p.mu.Unlock()
		return
	}
	if len(p.underWay) == 0 {
		if now-p.ending >= int64(pulseMemory) {
			p.took.Store(0)
		}
		p.oldest.Store(now)
	}
	p.underWay = append(p.underWay, now)
	p.next.Store(now + max(int64(pulsePeriod), int64(p.measured())/maxPulses))
	p.mu.Unlock()
	p.ask(now)
}

// ended records the end of the request that was sent then. One that failed says nothing.
func (p *Heartbeat) ended(sent int64, answered bool) {
	now := p.now().UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := slices.BinarySearch(p.underWay, sent); ok {
		p.underWay = slices.Delete(p.underWay, i, i+1)
	}
	if answered {
		p.ending = now
		if sent >= p.newest {
			p.newest = sent
			p.took.Store(now - sent)
		}
	}
	if len(p.underWay) > 0 {
		p.oldest.Store(p.underWay[0])
	} else {
		p.oldest.Store(0)
	}
}

// keep measures while there are connections of feeds.
func (p *Heartbeat) keep(ctx context.Context, contacts *Feeds) {
	tick := time.NewTicker(pulseIdle)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if contacts.Connections() > 0 {
			p.delay()
		}
	}
}

// beat measures the way once.
func (l *Detector) beat(sent int64) {
	took := func() {
		ctx, cancel := context.WithTimeout(l.Context, l.RequestTimeout)
		defer cancel()
		l.pulse.ended(sent, l.Beat(ctx) == nil)
	}
	if !l.Spawn(took) {
		l.pulse.ended(sent, false)
	}
}

// Lag is for how long what the feeds have taken was under way. It sees to it that this is measured.
func (l *Detector) Lag() time.Duration {
	l.pulse.delay()
	return l.late.delay()
}

// MeasuredLag is for how long what the upstream sends to the feeds is under way.
func (l *Detector) MeasuredLag() time.Duration {
	return max(l.pulse.measured(), l.contacts.unanswered())
}

// RTT is how long a small request last took, or one that is under way takes already; known tells
// whether any was answered yet.
func (l *Detector) RTT() (rtt time.Duration, known bool) {
	return l.pulse.measured(), l.pulse.took.Load() != 0
}
