package source

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SmallCallTimeout bounds calls with a small response.
	SmallCallTimeout = 15 * time.Second
	// recentContact is how recent the source's last activity must be for a timeout to be extended.
	recentContact = 2 * time.Second
)

// maxExtension bounds an extended timeout, as a multiple of the timeout.
const maxExtension = 10

// WithTimeout bounds a call with a small response by a timeout. The timeout is extended while bytes
// arrive from the source: on a slow link the response waits behind them, and a repeated call would
// wait again. When the time is over, the cause of the context is context.DeadlineExceeded.
func WithTimeout(ctx context.Context, source Source, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began, most := time.Now(), min(maxExtension*timeout, time.Minute)
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() { // which does not fire before it is stored
		last := source.LastContact()
		if time.Since(began) < most && last.After(began) && time.Since(last) < recentContact {
			timer.Reset(recentContact / 2)
			return
		}
		cancel(context.DeadlineExceeded)
	})
	timer.Reset(timeout)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// IsStatus reports whether err is a response of the server.
func IsStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// IsExpired reports whether the server no longer knows the requested version.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// IsTooLarge reports whether the server has not reached the requested version.
func IsTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsRejected reports whether the server rejected the request in a way that another attempt will not
// change soon: no permission, no such resource, method or encoding, or an invalid request.
func IsRejected(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}
