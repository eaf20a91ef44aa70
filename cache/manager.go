package cache

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Options configure a Manager.
type Options struct {
	// Source is what the collections are fed from. Required.
	Source Source
	Limits Limits
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
	// Logger is slog.Default when nil.
	Logger *slog.Logger
}

// Limits bound what the collections of a Manager keep and do. A zero field
// takes its default.
type Limits struct {
	// HistoryAge, HistoryBytes and HistoryEvents bound the events that each
	// collection keeps for late watchers and exact reads. Defaults: 10 min,
	// 64 MiB, 100,000.
	HistoryAge    time.Duration
	HistoryBytes  int64
	HistoryEvents int
	// SnapshotAge and SnapshotBytes bound the retained views of a collection;
	// bytes are those kept from being freed. Defaults: 10 min, 64 MiB.
	SnapshotAge   time.Duration
	SnapshotBytes int64
	// IdleAfter stops a collection that had neither a read nor a watcher for so
	// long. Default: 10 min.
	IdleAfter time.Duration
	// ColdStarts is how many collections may read their first list at the same
	// time; StartWaiters how many callers may wait for starting collections
	// before others are told to retry. Defaults: 4 and 1,000.
	ColdStarts   int
	StartWaiters int
	// StaleAfter is the silence of a connected feed after which it counts as
	// stale. Default: 30 s.
	StaleAfter time.Duration
	// Indexes is how many label keys and fields a collection indexes at most.
	// Default: 16.
	Indexes int
}

// Manager starts collections on first use, stops them when idle and owns them.
// It is safe for concurrent use.
type Manager struct{}

// NewManager makes a Manager. Close ends it.
func NewManager(o Options) (*Manager, error) { panic("TODO") }

// Collection returns the collection of res in enc, synced, starting it when
// nobody used it before; simultaneous first callers share one start. Call it
// for every request: the call is cheap, and it is what keeps a collection from
// being idle. The error is a Status error: 429 with a retry delay when too many
// wait already, the upstream's own when the start failed for good; or the
// context's.
func (m *Manager) Collection(ctx context.Context, res *Resource, enc api.Encoding) (*Collection, error) {
	panic("TODO")
}

// Drop stops the collections of gvr in all encodings and ends their watches
// with reason (see watchmux.Mux.Close).
func (m *Manager) Drop(gvr schema.GroupVersionResource, reason error) { panic("TODO") }

// CollectionStatus is one line of Status.
type CollectionStatus struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
	State    State
	RV       uint64
	Objects  int
	Bytes    int64
	Watchers int
}

// Status lists all collections, ordered by resource and encoding.
func (m *Manager) Status() []CollectionStatus { panic("TODO") }

// Close stops all collections and waits for their goroutines.
func (m *Manager) Close() { panic("TODO") }
