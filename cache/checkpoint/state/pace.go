package state

import (
	"context"
	"sync"
	"time"
)

// pacer limits the write rate. Its zero value does not.
type pacer struct {
	mu struct {
		sync.Mutex
		perSecond int64     // 0: no limit
		free      time.Time // when the bytes allowed so far are used up
	}
	hurry     chan struct{} // closed by lift
	closeOnce sync.Once
}

func newPacer(perSecond int64) *pacer {
	p := &pacer{hurry: make(chan struct{})}
	p.mu.perSecond = perSecond
	return p
}

// wait blocks until n bytes may be written.
func (p *pacer) wait(ctx context.Context, n int) error {
	p.mu.Lock()
	if p.mu.perSecond <= 0 {
		p.mu.Unlock()
		return ctx.Err()
	}
	now := time.Now()
	if p.mu.free.Before(now) {
		p.mu.free = now
	}
	delay := p.mu.free.Sub(now)
	p.mu.free = p.mu.free.Add(time.Duration(float64(n) / float64(p.mu.perSecond) * float64(time.Second)))
	p.mu.Unlock()
	if delay == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.hurry:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lift ends all current and future waits.
func (p *pacer) lift() {
	p.closeOnce.Do(func() { close(p.hurry) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.perSecond = 0
}
