package store

import (
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/watchmux"
)

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
