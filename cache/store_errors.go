package cache

import (
	"errors"
	"fmt"
)

// ErrRewound says that the upstream's version went back (a restored etcd, another cluster), so
// that nothing held is true any more.
var ErrRewound = errors.New("the upstream's resource version went back")

// ExpiredError says that a version is no longer held.
type ExpiredError struct {
	// RV is the version asked for, Oldest the oldest one that history reaches.
	RV, Oldest uint64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("resource version %d is too old (oldest held: %d)", e.RV, e.Oldest)
}

// TooLargeError says that a version is above what the collection holds.
type TooLargeError struct{ RV, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too large resource version: %d, current: %d", e.RV, e.Current)
}

// isTooLargeError reports whether err is, or wraps, a *TooLargeError.
func isTooLargeError(err error) bool {
	var tooLarge *TooLargeError
	return errors.As(err, &tooLarge)
}

// stoppedError says that a collection stopped while it was waited for.
type stoppedError struct{ reason error }

func (e *stoppedError) Error() string {
	return "the cache of this resource stopped: " + e.reason.Error()
}
func (e *stoppedError) Unwrap() error { return e.reason }
