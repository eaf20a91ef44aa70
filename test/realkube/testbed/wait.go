package testbed

import (
	"context"
	"fmt"
	"time"
)

// PollPeriod is how often conditions outside this process are checked.
const PollPeriod = 20 * time.Millisecond

// Poll calls check until it returns nil. After within, it returns check's last error.
func Poll(ctx context.Context, within time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(PollPeriod)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, err)
		}
	}
}

// Wait waits for d or until ctx is done.
func Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
