package store

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

// IsTooLarge reports whether err is, or wraps, a *TooLargeError.
func IsTooLarge(err error) bool {
	var tooLarge *TooLargeError
	return errors.As(err, &tooLarge)
}

// StoppedError says that a collection stopped while it was waited for.
type StoppedError struct{ Reason error }

func (e *StoppedError) Error() string {
	return "the cache of this resource stopped: " + e.Reason.Error()
}
func (e *StoppedError) Unwrap() error { return e.Reason }
