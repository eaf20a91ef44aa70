package review

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrUnavailable is the cause if the upstream is unavailable.
var ErrUnavailable = errors.New("the upstream could not be asked")

// ErrForbidden is the cause if the upstream does not let the gateway create reviews. A
// kube-apiserver that has not read its RBAC objects yet answers like this, too. Unlike
// ErrUnavailable it does not make older results usable: an operator who revokes the permission to
// create reviews expects the gateway to let nobody in.
var ErrForbidden = errors.New("the upstream does not let the gateway ask")

// ErrRejected is the cause if the upstream rejects the review itself. Its message is about the
// gateway: it belongs in the log and is not for clients.
var ErrRejected = errors.New("the upstream refused the question")

// ErrNoReview is the cause if a review is needed and the context forbids reviews, see
// WithoutReviews. It says nothing about what the user may do.
var ErrNoReview = errors.New("the upstream is not to be asked")

// WithoutReviews returns a context in which no review is created: whatever is neither cached nor
// decided in this process fails with ErrNoReview.
func WithoutReviews(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutReviews{}, true)
}

type withoutReviews struct{}

// Disabled reports whether ctx was returned by WithoutReviews.
func Disabled(ctx context.Context) bool { return ctx.Value(withoutReviews{}) != nil }

// retryDelay is the time between the two attempts to create a review.
const retryDelay = 100 * time.Millisecond

// Create calls create within timeout, and a second time if the upstream was unavailable: a review
// changes nothing, and a connection that the upstream just closed says nothing about the upstream.
func Create[R any](ctx context.Context, timeout time.Duration, create func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := create(ctx)
	if err == nil || ctx.Err() != nil || !errors.Is(Error("", err), ErrUnavailable) {
		return result, err
	}
	delay := time.NewTimer(retryDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return create(ctx)
	case <-ctx.Done():
		return result, err
	}
}

// Error classifies the error of a review. Statuses that tell about the state of the upstream, and
// all errors without a status, are ErrUnavailable.
func Error(doing string, err error) error {
	cause := ErrUnavailable
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == 401, code == 403:
			cause = ErrForbidden
		case code < 500 && code != 429:
			cause = ErrRejected
		}
	}
	return fmt.Errorf("%s: %w: %w", doing, cause, withoutStatus{err})
}

// withoutStatus hides the status of a review's error, which answers the gateway's request and not
// the client's.
type withoutStatus struct{ err error }

func (e withoutStatus) Error() string { return e.err.Error() }

// Unwrap shows only errors without a status.
func (e withoutStatus) Unwrap() error {
	var status apierrors.APIStatus
	if errors.As(e.err, &status) {
		return nil
	}
	return e.err
}

// LogInterval is how often a condition that each request may meet is logged at most.
const LogInterval = 10 * time.Second

// LogRejection logs an error of a review if it is ErrRejected. Package upstream logs ErrForbidden.
func LogRejection(limit *rate.Sometimes, log *slog.Logger, resource string, err error) {
	if errors.Is(Error("", err), ErrRejected) {
		limit.Do(func() { log.Warn("upstream rejected a review", "resource", resource, "error", err) })
	}
}
