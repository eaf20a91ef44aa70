package reflector

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
)

// Phase is a phase in the life of a collection: Starting, then Synced and Stale in turn, and
// finally Stopped.
type Phase uint8

// The phases.
const (
	// Starting is before the first complete list. There are no reads.
	Starting Phase = iota
	// Synced is complete and up to date, or about to be again: a watch that has ended is resumed at
	// once, and meanwhile LastContact tells the age of the state.
	Synced
	// Stale is complete, but the watch is broken or its connection silent.
	Stale
	// Stopped is the end.
	Stopped
)

// String returns the name for metrics and logs.
func (p Phase) String() string {
	return [...]string{"starting", "synced", "stale", "stopped"}[p]
}

// State is the state of a collection at one moment.
type State struct {
	Phase Phase
	// Since is when the phase began. For Stale it is the last moment at which the collection was
	// known to be up to date, so that the time since then is the age of what it serves.
	Since time.Time
	// LastContact is the last sign of life of the watch's connection, zero before the first. For a
	// broken watch it is not after the break.
	LastContact time.Time
	// Delay is the lower bound of the connection's delay, see Source.Delay. A watch may be slow and
	// healthy.
	Delay time.Duration
	// Err is why the collection is stale or stopped or, while it is starting, why the last attempt
	// failed. For a synced collection it is why its watch has just ended.
	Err error
}

// CurrentAt returns the last moment at which the collection was known to be up to date.
func (s State) CurrentAt() time.Time {
	if s.Phase == Stale {
		return s.Since
	}
	return s.LastContact
}

// Errors that end a stream, besides those of the source.
var (
	errSilent = errors.New("no event and no bookmark for too long")
	errBehind = errors.New("the API server lags behind others")
	errEnded  = errors.New("the watch ended")
	// ErrDecode says that the source sent something that is not an object of the resource.
	ErrDecode = errors.New("cannot decode an object from the upstream")
	// ErrLate says that the source has changes that its watch does not bring.
	ErrLate = errors.New("the watch lags behind the upstream")
	// errNoInitialEnd is treated as ErrUnsupported.
	errNoInitialEnd = fmt.Errorf("the initial events did not end: %w", source.ErrUnsupported)
)
