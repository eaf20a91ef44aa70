package cache

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Limits bound the memory and load of a Manager's collections. A zero field means its default.
type Limits struct {
	// HistoryAge, HistoryBytes and HistoryEvents bound the events that each collection keeps for
	// late watchers and exact reads. Defaults: 10 min, 64 MiB, 102,400.
	HistoryAge    time.Duration
	HistoryBytes  int64
	HistoryEvents int
	// SnapshotAge and SnapshotBytes bound the retained snapshots of a collection: how long one may
	// stay unused, and the bytes that all of them keep from being freed. Defaults: 10 min, 64 MiB.
	SnapshotAge   time.Duration
	SnapshotBytes int64
	// QueryBytes bounds the columns and orders that queries make of a collection, including what
	// they keep from being freed. Default: 64 MiB.
	QueryBytes int64
	// IdleAfter is how long a collection without reads and watches is kept. Default: 10 min.
	IdleAfter time.Duration
	// ColdStarts is the maximum number of concurrent lists. StartWaiters is how many callers may
	// wait for collections to start; the others are told to retry. Defaults: 4 and 1,000.
	ColdStarts   int
	StartWaiters int
	// StaleAfter is how long the connection of a watch may be silent before the collection is
	// Stale. Default: 30 s.
	StaleAfter time.Duration
	// Indexes is the maximum number of indexes of a collection. Default: 16.
	Indexes int
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.HistoryAge, defaults.HistoryAge)
	orDefault(&l.HistoryBytes, defaults.HistoryBytes)
	orDefault(&l.HistoryEvents, defaults.HistoryEvents)
	orDefault(&l.SnapshotAge, defaults.SnapshotAge)
	orDefault(&l.SnapshotBytes, defaults.SnapshotBytes)
	orDefault(&l.QueryBytes, defaults.QueryBytes)
	orDefault(&l.IdleAfter, defaults.IdleCollectionTimeout)
	orDefault(&l.ColdStarts, defaults.MaxColdStarts)
	orDefault(&l.StartWaiters, defaults.MaxStartWaiters)
	orDefault(&l.StaleAfter, defaults.FeedStale)
	orDefault(&l.Indexes, defaults.MaxIndexes)
	return l
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
