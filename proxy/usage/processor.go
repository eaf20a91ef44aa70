package usage

import (
	"sync"
	"sync/atomic"
	"time"
)

// Processor finds out what work has taken of the processor: the process's own time is shared out
// by what the work was estimated at. So what everybody is said to have cost never is more than
// what was used, and how fast the machine is, and what the garbage collector takes, is in it.
// What kubeweir does for nobody has a share as well: what its feeds bring, and a little for
// each second. There is one for a process, whatever the number of clusters. It is safe for
// concurrent use.
type Processor struct {
	// read tells the processor time of the process so far; ok is false if that is not known.
	read func() (spent time.Duration, ok bool)
	// work is the estimate of all, in nanoseconds.
	work atomic.Int64

	mu struct {
		sync.Mutex
		epoch  int64 // that was settled last, in short panes
		spent  time.Duration
		work   int64
		at     time.Time
		factor float64
	}
}

// idleWork is what an idle process is estimated to take in a second, in nanoseconds.
const idleWork = 3e6

// The estimates are of a machine of 2024. Others are slower or faster by so much at most; what
// would be beyond that is something else that the process does.
const leastFactor, mostFactor = 0.2, 4

// NewProcessor returns one that reads the time of this process.
func NewProcessor() *Processor { return newProcessor(processTime) }

func newProcessor(read func() (time.Duration, bool)) *Processor {
	p := &Processor{read: read}
	p.mu.factor = 1
	return p
}

// did counts work.
func (p *Processor) did(work float64) { p.work.Add(int64(work)) }

// factor says what a nanosecond of estimated work has taken lately.
func (p *Processor) factor() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.factor
}

// settle finds out the factor of the time since it was last called, once for each epoch.
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
		p.mu.factor = min(max(float64(spent-p.mu.spent)/estimate, leastFactor), mostFactor)
	}
	p.mu.epoch, p.mu.spent, p.mu.work, p.mu.at = epoch, spent, work, now
	return p.mu.factor
}

func epochOf(now time.Time) int64 { return now.UnixNano() / int64(shortPane) }
