package usage

import (
	"sync"
	"sync/atomic"
	"time"
)

// Processor relates estimates of work to CPU time: it divides the CPU time of the process in
// proportion to the estimates. So the sum over all clients never exceeds what was used, and the speed
// of the machine and the garbage collector are included. What kubeweir does for no client has a share
// as well: reflectors, and a little for each second. A process has one Processor, whatever the number
// of clusters. It is safe for concurrent use.
type Processor struct {
	// read returns the CPU time of the process so far; ok is false if that is unknown.
	read func() (spent time.Duration, ok bool)
	// work is the estimate of everything, in nanoseconds.
	work atomic.Int64

	mu struct {
		sync.Mutex
		epoch  int64 // the last one that was settled, in short panes
		spent  time.Duration
		work   int64
		at     time.Time
		factor float64
	}
}

const (
	// idleWork is the estimated work of an idle process in a second, in nanoseconds.
	idleWork = 3e6
	// The estimates are for a machine of 2024. Others are slower or faster by these factors at most;
	// what would be beyond them is something else that the process does.
	minFactor, maxFactor = 0.2, 4
)

// NewProcessor returns a Processor for this process.
func NewProcessor() *Processor { return newProcessor(processTime) }

func newProcessor(read func() (time.Duration, bool)) *Processor {
	p := &Processor{read: read}
	p.mu.factor = 1
	return p
}

// did adds work.
func (p *Processor) did(work float64) { p.work.Add(int64(work)) }

// factor returns the CPU time that a nanosecond of estimated work took lately.
func (p *Processor) factor() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.factor
}

// settle updates and returns the factor, once for each epoch.
func (p *Processor) settle(now time.Time) float64 {
	epoch := epochOf(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch <= p.mu.epoch {
		return p.mu.factor
	}
	spent, ok := p.read()
	work := p.work.Load()
	if first := p.mu.epoch == 0; ok && !first {
		estimate := float64(work-p.mu.work) + idleWork*now.Sub(p.mu.at).Seconds()
		p.mu.factor = min(max(float64(spent-p.mu.spent)/estimate, minFactor), maxFactor)
	}
	p.mu.epoch, p.mu.spent, p.mu.work, p.mu.at = epoch, spent, work, now
	return p.mu.factor
}

func epochOf(now time.Time) int64 { return now.UnixNano() / int64(shortPane) }
