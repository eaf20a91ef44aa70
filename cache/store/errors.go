package store

import (
	"errors"
	"fmt"
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
