package review

import (
	"context"
	"errors"
	"fmt"

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
var ErrRejected = errors.New("the upstream rejected the review")

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
