package store

import (
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/watchmux"
)

// ErrRewound says that the upstream's resourceVersion went back, for example because etcd was
// restored or because it is another cluster. Nothing that was held is valid.
var ErrRewound = errors.New("the upstream's resourceVersion went back")

// ErrSuspect says that the upstream's resourceVersion may have gone back. The reflector finds out.
var ErrSuspect = errors.New("the upstream's resourceVersion may have gone back")

// ExpiredError says that the state at a version is no longer held.
type ExpiredError struct {
	// RV is the requested version, Oldest the oldest version that the history reaches.
	RV, Oldest uint64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("resource version %d is too old (oldest held: %d)", e.RV, e.Oldest)
}

// TooLargeError says that a requested version is above Current, the version that is held.
type TooLargeError struct{ RV, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too large resource version: %d, current: %d", e.RV, e.Current)
}

// IsTooLarge reports whether err is, or wraps, a *TooLargeError.
func IsTooLarge(err error) bool {
	var tooLarge *TooLargeError
	return errors.As(err, &tooLarge)
}

// StoppedError says that a collection stopped while a caller waited for it.
type StoppedError struct{ Reason error }

func (e *StoppedError) Error() string {
	return "the collection stopped: " + e.Reason.Error()
}
func (e *StoppedError) Unwrap() error { return e.Reason }

// Reasons why a collection stops, beside ErrRewound and a *DroppedError.
var (
	// ErrIdle says that nobody used the collection.
	ErrIdle = errors.New("idle")
	// ErrManagerClosed says that the Manager was closed.
	ErrManagerClosed = errors.New("the cache is shutting down")
	// ErrDiffers says that the collection was found to differ from the upstream.
	ErrDiffers = errors.New("the collection differed from the upstream")
)

// DroppedError says that the collection was dropped for a reason, see Manager.Drop.
type DroppedError struct{ Reason error }

func (e *DroppedError) Error() string { return "dropped: " + e.Reason.Error() }

// Unwrap returns the reason.
func (e *DroppedError) Unwrap() error { return e.Reason }

// CloseReason returns the error with which the watchers of a collection end that stopped for
// reason.
func CloseReason(reason error) error {
	var dropped *DroppedError
	switch {
	case errors.As(reason, &dropped):
		return dropped
	case errors.Is(reason, ErrRewound), errors.Is(reason, ErrDiffers):
		return fmt.Errorf("%w: %w", watchmux.ErrGone, reason)
	}
	return fmt.Errorf("%w: %w", watchmux.ErrStopped, reason)
}
