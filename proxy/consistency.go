package proxy

import "time"

// Mode says how a most-recent read (no resourceVersion) is answered.
type Mode string

const (
	// ModeStrict is linearizable: the upstream is asked after the request arrived.
	// It names the objects of a list and their versions, and what the cache holds of
	// just those is the answer (revalidation); else it answers itself. Identical
	// requests at the same time share what was begun after all of them arrived.
	ModeStrict Mode = "strict"
	// ModeSession answers from the cache once it holds every write that went
	// through this gateway.
	ModeSession Mode = "session"
)

// Consistency chooses the Mode of a read. It must not change while in use.
type Consistency struct {
	// Default is the mode where no rule says another.
	Default Mode
	// MaxStaleness is how long ago the feed's connection may have given a sign
	// of life for a session read; 0 means any time while the feed is up.
	MaxStaleness time.Duration
}
