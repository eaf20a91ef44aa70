package testapi

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxAdvance bounds how far a clock is ahead of real time.
const maxAdvance = 10 * 365 * 24 * time.Hour

var errInvalidAdvance = errors.New("the clock was not advanced")

// Clock shows the real time, or a later one once it was advanced. Timers that are due then fire at once.
// Only Now, Since and NewTimer are affected. It is safe for concurrent use.
type Clock struct {
	clock.RealClock

	mu     sync.Mutex
	ahead  time.Duration        // guarded by mu
	timers map[*timer]time.Time // guarded by mu: when they are due
}

// NewClock returns a Clock that shows the real time.
func NewClock() *Clock { return &Clock{timers: make(map[*timer]time.Time)} }

// Advance sets the clock forward.
func (c *Clock) Advance(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by <= 0 || by > maxAdvance-c.ahead {
		return fmt.Errorf("%w: advance must be a positive duration such as 1h, and the sum at most %v, not %v", errInvalidAdvance, maxAdvance, by)
	}
	c.ahead += by
	now := c.nowLocked()
	for t, due := range c.timers {
		if t.real.Stop() {
			t.real.Reset(due.Sub(now))
		}
	}
	return nil
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

// nowLocked returns the time without its monotonic reading, so that differences include what was added.
func (c *Clock) nowLocked() time.Time { return time.Now().Round(0).Add(c.ahead) }

// Since implements clock.Clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// NewTimer implements clock.Clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{clock: c, real: time.NewTimer(d)}
	c.timers[t] = c.nowLocked().Add(d)
	return t
}

// timer is a timer of a Clock.
type timer struct {
	clock *Clock
	real  *time.Timer
}

// C implements clock.Timer.
func (t *timer) C() <-chan time.Time { return t.real.C }

// Stop implements clock.Timer.
func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	delete(t.clock.timers, t)
	return t.real.Stop()
}

// Reset implements clock.Timer.
func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.timers[t] = t.clock.nowLocked().Add(d)
	return t.real.Reset(d)
}
