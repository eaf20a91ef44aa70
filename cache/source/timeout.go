package source

import (
	"context"
	"sync"
	"time"
)

const (
	// SmallCallTimeout bounds the calls that answer with next to nothing.
	SmallCallTimeout = 15 * time.Second
	// recentContact is how long ago the source's last sign of life may be for a timeout to begin
	// anew.
	recentContact = 2 * time.Second
)

// maxPatience is how often a timeout is begun anew at most.
const maxPatience = 10

// WithTimeout bounds a call that is answered with next to nothing by a timeout, which is begun
// anew while bytes come from the source: over a slow link the answer waits its turn behind
// them, and that it was given up would make it late again. The error is that of a deadline.
func WithTimeout(ctx context.Context, source Source, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began, most := time.Now(), min(maxPatience*timeout, time.Minute)
	var timer *time.Timer
	var mu sync.Mutex
	mu.Lock() // the timer may run out before it is stored
	defer mu.Unlock()
	timer = time.AfterFunc(timeout, func() {
		mu.Lock()
		defer mu.Unlock()
		last := source.LastContact()
		if time.Since(began) < most && last.After(began) && time.Since(last) < recentContact {
			timer.Reset(recentContact / 2)
			return
		}
		cancel(context.DeadlineExceeded)
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
