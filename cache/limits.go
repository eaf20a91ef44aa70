package cache

import (
	"cmp"
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
	// SnapshotAge and SnapshotBytes bound the retained snapshots of a collection: how long one is
	// kept, and the bytes that all of them keep from being freed. Defaults: 5 min, 64 MiB.
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
	l.HistoryAge = cmp.Or(l.HistoryAge, defaults.HistoryAge)
	l.HistoryBytes = cmp.Or(l.HistoryBytes, defaults.HistoryBytes)
	l.HistoryEvents = cmp.Or(l.HistoryEvents, defaults.HistoryEvents)
	l.SnapshotAge = cmp.Or(l.SnapshotAge, defaults.SnapshotAge)
	l.SnapshotBytes = cmp.Or(l.SnapshotBytes, defaults.SnapshotBytes)
	l.QueryBytes = cmp.Or(l.QueryBytes, defaults.QueryBytes)
	l.IdleAfter = cmp.Or(l.IdleAfter, defaults.IdleCollectionTimeout)
	l.ColdStarts = cmp.Or(l.ColdStarts, defaults.MaxColdStarts)
	l.StartWaiters = cmp.Or(l.StartWaiters, defaults.MaxStartWaiters)
	l.StaleAfter = cmp.Or(l.StaleAfter, defaults.FeedStale)
	l.Indexes = cmp.Or(l.Indexes, defaults.MaxIndexes)
	return l
}
