// Package defaults holds what a setting is when nobody sets it, where both the
// configuration that users see (package config) and the part that it configures have to
// know. Each value stands here and nowhere else.
package defaults

import "time"

// Of the cache, a collection (one resource in one encoding) each but for the last three.
const (
	HistoryAge            = 10 * time.Minute
	HistoryBytes          = 64 << 20
	HistoryEvents         = 102400
	SnapshotAge           = 10 * time.Minute
	SnapshotBytes         = 64 << 20
	IdleCollectionTimeout = 10 * time.Minute
	FeedStale             = 30 * time.Second
	MaxIndexes            = 16

	DerivedCacheBytes = 64 << 20 // of all collections together
	MaxColdStarts     = 4        // collections at the same time
	MaxStartWaiters   = 1000     // requests
)

// Of who a client is and what it may do.
const (
	TokenTTL        = 10 * time.Second
	TokenFailureTTL = 2 * time.Second
	TokenCacheSize  = 8192 // tokens

	AllowedTTL         = 10 * time.Second
	DeniedTTL          = 5 * time.Second
	DecisionCacheSize  = 16384 // decisions
	WatchRecheckPeriod = time.Minute
	WatchGrace         = 5 * time.Minute

	ReviewTimeout = 10 * time.Second
)
