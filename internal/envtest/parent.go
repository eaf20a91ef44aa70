package envtest

import (
	"context"
	"os"
	"time"
)

// parentPeriod is how often Parent checks.
const parentPeriod = 200 * time.Millisecond

// Parent returns a context that is also canceled when the parent process exits, so that killed tests
// leave no servers behind. Not on Windows, where the parent's ID does not change, and not for a process
// that leads a session: kwokctl, and others that let it run on, have detached it from themselves.
func Parent(ctx context.Context) context.Context {
	parent := os.Getppid()
	if parent <= 1 || leadsSession() {
		return ctx // it has ended already, or it is the first process of a container
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		tick := time.NewTicker(parentPeriod)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx
}
