package review

import (
	"fmt"
	"sync/atomic"
	"time"
)

// With an offline time configured, a request must not wait for an unavailable upstream if an older
// result can be used.
const (
	// StaleWait is how long a review may take if an older result can be used.
	StaleWait = 2 * time.Second
	// StaleFor is how long older results are then used without a review: all of them in an outage,
	// otherwise the one whose review failed.
	StaleFor = 5 * time.Second
)

var errSlow = fmt.Errorf("%w in time", ErrUnavailable)

// Outage remembers that the upstream is unavailable. It is safe for concurrent use.
type Outage struct {
	// Reachable reports whether the upstream is reachable; nil if that is unknown.
	Reachable func() bool

	retryAt     atomic.Int64 // when to review again, on the cache's clock; 0 without an outage
	unreachable atomic.Bool  // Reachable was false when the outage began
}

// Review reports whether a request that has an older result needs a review all the same. During an
// outage one request every StaleFor does, and each request once the upstream is reachable again.
func (o *Outage) Review(now int64) bool {
	at := o.retryAt.Load()
	if at != 0 && o.unreachable.Load() && o.Reachable() {
		o.End()
		return true
	}
	return at == 0 || now >= at && o.retryAt.CompareAndSwap(at, now+int64(StaleFor))
}

// Begin records that the upstream is unavailable. It returns false and records nothing while the
// upstream is known to be reachable: one slow review, which a client may have chosen, must not make
// the gateway use older results for everybody else.
func (o *Outage) Begin(now int64) bool {
	if o.Reachable != nil && o.Reachable() {
		return false
	}
	o.unreachable.Store(o.Reachable != nil)
	o.retryAt.Store(now + int64(StaleFor))
	return true
}

// End records that a review succeeded.
func (o *Outage) End() {
	if o.retryAt.Load() != 0 {
		o.retryAt.Store(0)
	}
}

// Outcome is the result of reviewing again what an open watch depends on. It is a metric label.
type Outcome string

// The outcomes.
const (
	Good    Outcome = "good"
	Offline Outcome = "offline" // good by a decision made before the outage
	Lost    Outcome = "lost"
	Unknown Outcome = "unknown"
)
