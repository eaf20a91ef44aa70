package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// done counts a request and translates its error. ctx is the caller's: it does not end with the
// engine.
func (e *Engine) done(ctx context.Context, operation string, started time.Time, err error) error {
	e.metrics.requests.WithLabelValues(operation).Observe(time.Since(started).Seconds())
	err = e.translate(ctx, err)
	if err != nil {
		e.metrics.errors.WithLabelValues(operation, reason(err)).Inc()
	}
	if err == nil || errors.Is(err, storage.ErrUnavailable) {
		e.noteReach(err)
	}
	return err
}

// translate maps an error of etcd's client or of gRPC to the storage package's.
func (e *Engine) translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e.ctx.Err() != nil {
		return storage.ErrClosed
	}
	err = rpctypes.Error(err)
	switch {
	case isTimeout(err) && atDeadline(ctx):
		return context.DeadlineExceeded
	case errors.Is(err, rpctypes.ErrCompacted):
		return storage.ErrCompacted
	case isTooLarge(err):
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.OutOfRange, codes.Unimplemented:
		return fmt.Errorf("etcd %s: %w", e.endpoints, err)
	}
	return fmt.Errorf("%w: etcd %s: %w", storage.ErrUnavailable, e.endpoints, err)
}

// uncertain wraps the error of a change in storage.ErrUncertain, unless etcd did not get the
// request or rejected it.
func uncertain(err error) error {
	known := err == nil || !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrClosed)
	for _, rejected := range []error{rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader} {
		known = known || errors.Is(err, rejected)
	}
	// gRPC reports this only by the text.
	if known || codeOf(err) == codes.Unavailable && strings.Contains(err.Error(), "Error while dialing") {
		return err
	}
	return storage.Uncertain(err)
}

// isTimeout reports whether etcd or gRPC timed out.
func isTimeout(err error) bool {
	return errors.Is(err, rpctypes.ErrTimeout) || codeOf(err) == codes.DeadlineExceeded
}

// atDeadline reports whether a context is about to end: etcd has the same deadline and may notice
// it first.
func atDeadline(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < 20*time.Millisecond
}

// isTooLarge reports whether a request exceeds a limit: etcd's (1.5 MiB unless configured), or
// that of gRPC, which the client checks before sending and the server while reading.
func isTooLarge(err error) bool {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	return codeOf(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

func codeOf(err error) codes.Code {
	var etcdErr rpctypes.EtcdError
	if errors.As(err, &etcdErr) {
		return etcdErr.Code()
	}
	return status.Code(err) // of what err wraps, too
}

// reason is an error's label in the metrics.
func reason(err error) string {
	var future *storage.FutureError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "context"
	case errors.Is(err, storage.ErrClosed):
		return "closed"
	case errors.Is(err, storage.ErrCompacted):
		return "compacted"
	case errors.Is(err, storage.ErrTooLarge):
		return "too_large"
	case errors.Is(err, storage.ErrUnavailable):
		return "unavailable"
	case errors.As(err, &future):
		return "future"
	}
	return "other"
}

// noteReach logs when etcd becomes unavailable and when it is back, once each.
func (e *Engine) noteReach(err error) {
	e.mu.Lock()
	changed := e.mu.unreachable != (err != nil)
	e.mu.unreachable = err != nil
	e.mu.Unlock()
	if err == nil {
		e.metrics.available.Set(1)
	} else {
		e.metrics.available.Set(0)
	}
	switch {
	case !changed:
	case err != nil:
		e.log.Warn("etcd is unavailable", "endpoints", e.endpoints, "error", err)
	default:
		e.log.Info("etcd is available again", "endpoints", e.endpoints)
	}
}
