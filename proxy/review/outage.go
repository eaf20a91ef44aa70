package review

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Where an offline time is configured, a request must not wait for an upstream
// that is not there when there is an older answer to fall back on.
const (
	// StaleWait is how long the upstream may take for an answer that an older one
	// can stand in for.
	StaleWait = 2 * time.Second
	// StaleFor is how long the older answers then count without asking: all of them in
	// an outage, else the one to that question.
	StaleFor = 5 * time.Second
)

var errSlow = fmt.Errorf("%w in time", ErrUnavailable)

// Outage remembers that the upstream could not be asked. It is safe for
// concurrent use.
type Outage struct {
	// Reachable tells whether the upstream can be reached, as far as is known; nil if
	// nobody knows.
	Reachable func() bool
	next      atomic.Int64 // when to ask again, on the cache's clock; 0 without an outage
	away      atomic.Bool  // it could not be reached when it was asked last
}

// Ask tells a request that has an older answer whether to ask the upstream all
// the same. In an outage one does every StaleFor, and everybody once the upstream can
// be reached again.
func (o *Outage) Ask(now int64) bool {
	next := o.next.Load()
	if next != 0 && o.away.Load() && o.Reachable() {
		o.End()
		return true
	}
	return next == 0 || now >= next && o.next.CompareAndSwap(next, now+int64(StaleFor))
}

// Begin records that the upstream could not be asked. It is no outage, and false, while the
// upstream is known to be reachable: one question that it takes its time for, which somebody
// may have chosen, must not have everybody else known by older answers.
func (o *Outage) Begin(now int64) bool {
	away := o.Reachable != nil && !o.Reachable()
	if o.Reachable != nil && !away {
		return false
	}
	o.away.Store(away)
	o.next.Store(now + int64(StaleFor))
	return true
}

// End records that the upstream could be asked.
func (o *Outage) End() {
	if o.next.Load() != 0 {
		o.next.Store(0)
	}
}

// WithTimeout returns ctx limited to what an answer of the upstream may take: most, or
// StaleWait when there is an older answer. A review that is under way already, and
// is waited for before the next can begin, counts.
func WithTimeout(ctx context.Context, stale bool, most time.Duration) (context.Context, context.CancelFunc) {
	if stale {
		most = min(most, StaleWait)
	}
	return context.WithTimeoutCause(ctx, most, errSlow)
}
