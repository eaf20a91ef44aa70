package app

import (
	"context"
	"sync"
	"time"
)

// lazyTimeout is a context that ends some time after somebody begins to wait for its
// end: one that nobody waits for costs no timer.
type lazyTimeout struct {
	context.Context
	limit time.Duration

	mu struct {
		sync.Mutex
		timed  context.Context // nil while nobody waits
		cancel context.CancelFunc
	}
}

// Done implements context.Context.
func (p *lazyTimeout) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.timed == nil {
		p.mu.timed, p.mu.cancel = context.WithTimeout(p.Context, p.limit)
	}
	return p.mu.timed.Done()
}

// Err implements context.Context.
func (p *lazyTimeout) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.timed == nil {
		return p.Context.Err()
	}
	return p.mu.timed.Err()
}

// end releases the timer. Nobody may wait any more.
func (p *lazyTimeout) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.cancel != nil {
		p.mu.cancel()
	}
}
