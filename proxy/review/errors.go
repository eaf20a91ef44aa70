package review

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrUnavailable is the cause when the upstream could not be asked.
var ErrUnavailable = errors.New("the upstream could not be asked")

// ErrForbidden is the cause when the upstream does not let the gateway ask. So does
// every kube-apiserver that has not read its RBAC objects yet. Unlike ErrUnavailable
// it lends no older answer a longer life: whoever takes the right to ask away from a
// gateway wants it to let nobody in.
var ErrForbidden = errors.New("the upstream does not let the gateway ask")

// ErrRejected is the cause when the upstream does not take the gateway's
// questions. What it says of them is about the gateway: for the log, not for clients.
var ErrRejected = errors.New("the upstream refused the question")

// ErrNoReview is the cause when the upstream would have to be asked and the caller said that
// it may not be, see WithoutReviews. It tells nothing of what the user may do.
var ErrNoReview = errors.New("the upstream is not to be asked")

// WithoutReviews is a context with which the upstream is asked for nothing: what is not
// remembered, or decided here, ends in ErrNoReview.
func WithoutReviews(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutAsking{}, true)
}

type withoutAsking struct{}

// Disabled reports whether ctx is one of WithoutReviews.
func Disabled(ctx context.Context) bool { return ctx.Value(withoutAsking{}) != nil }

// Error says what a failed review means. Answers that tell of the upstream's
// state, and everything that is no answer at all, are ErrUnavailable; the rest is
// about the gateway.
func Error(what string, err error) error {
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
	return fmt.Errorf("%s: %w: %w", what, cause, withoutStatus{err})
}

// LogRejection tells the operator, from time to time, of an answer to a review
// that is no answer but a refusal of the question. A refusal of the gateway itself is
// told by who asks, see upstream.
func LogRejection(c *LogLimit, log *slog.Logger, resource string, err error) {
	if !errors.Is(Error("", err), ErrRejected) || !c.Allow() {
		return
	}
	log.Warn("the upstream does not take the gateway's reviews", "resource", resource, "error", err)
}

// withoutStatus hides the status of a review's error, which answers the
// gateway's request and not the client's.
type withoutStatus struct{ err error }

func (e withoutStatus) Error() string { return e.err.Error() }

// Unwrap shows what is below a network error only.
func (e withoutStatus) Unwrap() error {
	var status apierrors.APIStatus
	if errors.As(e.err, &status) {
		return nil
	}
	return e.err
}
