package review

import (
	"context"
	"errors"
	"time"
)

// RetryPause is the time between the two tries of a review.
const RetryPause = 100 * time.Millisecond

// Create calls create, and once more when the upstream could not be asked,
// within timeout.
func Create[R any](ctx context.Context, timeout time.Duration, create func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := create(ctx)
	if err == nil || ctx.Err() != nil || !errors.Is(Error("", err), ErrUnavailable) {
		return result, err
	}
	pause := time.NewTimer(RetryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return create(ctx)
	case <-ctx.Done():
		return result, err
	}
}
