package state

import (
	"context"
	"sync"
	"time"
)

// pacer limits the write rate.
type pacer struct {
	perSecond int64 // 0: no limit
	mu        sync.Mutex
	free      time.Time          // when the bytes allowed so far are used up; guarded by mu
	hurry     context.Context    // ended by lift
	lift      context.CancelFunc // ends all current and future waits
}

func newPacer(perSecond int64) *pacer {
	p := &pacer{perSecond: perSecond}
	p.hurry, p.lift = context.WithCancel(context.Background())
	return p
}

// wait blocks until n bytes may be written.
func (p *pacer) wait(ctx context.Context, n int) error {
	if p.perSecond <= 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	delay := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-p.hurry.Done():
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
