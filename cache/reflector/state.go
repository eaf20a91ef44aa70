package reflector

import "time"

// Phase is a phase in the life of a collection.
type Phase uint8

// The phases: Starting -> Synced <-> Stale -> Stopped.
const (
	// Starting: not complete yet; no reads.
	Starting Phase = iota
	// Synced: complete and fed, or just about to be again: a watch that ended is
	// resumed at once, and LastContact says meanwhile how old the state is.
	Synced
	// Stale: complete, but the feed is broken or its connection is silent.
	Stale
	// Stopped for good.
	Stopped
)

// String names the phase for metrics and logs.
func (p Phase) String() string {
	return [...]string{"starting", "synced", "stale", "stopped"}[p]
}

// State is how a collection is doing at one moment.
type State struct {
	Phase Phase
	// Since is when the phase began. For Stale it is the last moment at which
	// the collection was known to be fed, so that now minus Since is the age of
	// what it serves.
	Since time.Time
	// LastContact is the last sign of life of the feed's connection, the zero
	// time before the first; for a broken feed never after the break.
	LastContact time.Time
	// Delay is for how long what the feed brings is under way, at least (see
	// Source.Delay): a feed may be slow and alive.
	Delay time.Duration
	// Err is why it is stale or stopped, while starting why the last attempt
	// failed, and for a synced collection that is just not being fed why.
	Err error
}

// Fed is the last moment at which the collection was known to be fed: the last sign of
// life, or when it became stale.
func (s State) Fed() time.Time {
	if s.Phase == Stale {
		return s.Since
	}
	return s.LastContact
}
