package upstream

import (
	"context"
	"sync"
	"time"
)

// watchAfter is how long a request takes before its client's leaving is watched for.
// Over HTTP/1.1 that takes goroutines that read ahead and are called back, more than
// most requests cost here, and most are answered before a client could leave.
const watchAfter = 10 * time.Millisecond

// leaving waits for a client to leave.
type leaving struct {
	timer *time.Timer

	mu   sync.Mutex
	over bool
	stop func() bool // once it is watched for
}

// whenLeft calls f, in a goroutine of its own, if the client whose context is ctx
// leaves before stop is called, or left within watchAfter.
func whenLeft(ctx context.Context, f func()) (stop func()) {
	l := &leaving{}
	l.timer = time.AfterFunc(watchAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			l.stop = context.AfterFunc(ctx, f)
		}
	})
	return l.end
}

func (l *leaving) end() {
	l.timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.stop != nil {
		l.stop()
	}
}
