package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/backfill"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Options configure a Manager.
type Options struct {
	// Source fills the collections. Required.
	Source source.Source
	Limits Limits
	// Checkpoints determines which collections are saved for a restart.
	Checkpoints checkpoint.Options
	// CheckPeriod is how often each collection is compared with the source; 0 means never.
	CheckPeriod time.Duration
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
	// Logger is the logger; nil means slog.Default.
	Logger *slog.Logger
}

// Manager starts collections on first use, stops them when idle, and owns them. It is safe for
// concurrent use.
type Manager struct {
	source       source.Source
	limits       Limits
	listing      chan struct{} // see reflector.Options
	backfills    chan struct{} // see backfill.Options
	content      atomic.Uint64 // see store.Options
	metrics      *metrics
	outage       *reflector.Outage
	checkpointer *checkpoint.Checkpointer // nil if nothing is kept
	log          *slog.Logger
	panics       *contain.Panics
	ctx          context.Context // of all collections
	cancel       context.CancelCauseFunc
	work         sync.WaitGroup // the janitor and the collections
	waiting      atomic.Int64   // callers that wait for a start
	// checking admits one comparison at a time.
	checking chan struct{}

	// mu guards the maps. An entry leaves collections when it has stopped (see failedForGood for an
	// exception), or is about to stop.
	mu struct {
		sync.RWMutex
		collections map[collectionKey]*entry
		rewound     map[collectionKey]time.Time // when a rewind last stopped the collection
		wanted      map[collectionKey]time.Time // see Wanted; at most one per resource and encoding
		closed      bool
	}
}

type collectionKey struct {
	resource schema.GroupVersionResource
	encoding api.Encoding
}

// failedFor is how long an entry stays that failedForGood.
const failedFor = time.Minute

// tidyPeriod is how often the janitor looks at the collections.
const tidyPeriod = 15 * time.Second

// retrySeconds is the retry delay for callers when too many wait.
const retrySeconds = 1

// NewManager returns a Manager. Close stops it. An error comes from the Registerer.
func NewManager(o Options) (*Manager, error) {
	limits := o.Limits.withDefaults()
	log := cmp.Or(o.Logger, slog.Default())
	m := &Manager{
		source:       o.Source,
		limits:       limits,
		listing:      make(chan struct{}, limits.ColdStarts),
		backfills:    make(chan struct{}, backfill.Slots),
		metrics:      newMetrics(),
		checkpointer: checkpoint.New(o.Checkpoints, o.Source, log),
		log:          log,
		panics:       contain.New(o.Registerer, log),
		checking:     make(chan struct{}, 1),
	}
	m.mu.collections = make(map[collectionKey]*entry)
	m.mu.rewound = make(map[collectionKey]time.Time)
	m.mu.wanted = make(map[collectionKey]time.Time)
	if o.Registerer != nil {
		if err := m.register(o.Registerer, o.CheckPeriod); err != nil {
			return nil, fmt.Errorf("cache metrics: %w", err)
		}
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	spawn := func(f func()) { m.panics.Go(&m.work, "background", f) }
	m.outage = reflector.NewOutage(m.ctx, o.Source, spawn, log)
	m.panics.Keep(&m.work, "background", m.tidy)
	if k := m.checkpointer; k != nil {
		k.Start(m.ctx, m.panics, m.checkpointed)
	}
	if o.CheckPeriod > 0 {
		m.panics.Keep(&m.work, "background", func() { m.checkAll(o.CheckPeriod) })
	}
	return m, nil
}

// Close stops all collections and waits for their goroutines. Checkpoints are saved before, if that
// is possible within a few seconds.
func (m *Manager) Close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	if m.checkpointer != nil {
		m.checkpointer.Finish()
	}
	m.cancel(store.ErrManagerClosed)
	m.stop(store.ErrManagerClosed, func(*entry) bool { return true })
	m.work.Wait()
}

// Panics returns what contains the panics of collections and of their users.
func (m *Manager) Panics() *contain.Panics { return m.panics }

// IsImmediate reports whether the source is an ImmediateSource.
func (m *Manager) IsImmediate() bool {
	_, ok := m.source.(source.ImmediateSource)
	return ok
}

// Minor returns the minor release of Kubernetes 1 that the source's server reports, or 0 if it
// reports something else. It requests it from the server if necessary.
func (m *Manager) Minor(ctx context.Context) int { return minorOf(m.outage.Known(ctx)) }

// KnownMinor is Minor as far as is known, without a request.
func (m *Manager) KnownMinor() int { return minorOf(m.outage.LastKnown()) }

func minorOf(server string) int {
	release, isV1 := strings.CutPrefix(api.GitVersion([]byte(server)), "v1.")
	text, _, _ := strings.Cut(release, ".")
	minor, err := strconv.Atoi(text)
	if !isV1 || err != nil {
		return 0
	}
	return max(0, minor)
}

// Collection returns the synced collection of res in enc. The first callers start it together. Call
// it for every request: it is cheap, and it keeps the collection from being idle. The error is a
// 429 Status error with a retry delay if too many callers wait, the source's own if the start was
// rejected or has failed twice (the collection keeps trying), ErrRedefined, or the cause of ctx.
func (m *Manager) Collection(ctx context.Context, res *source.Resource, enc api.Encoding) (*Collection, error) {
	for attempt := 0; ; attempt++ {
		e, err := m.find(res, enc)
		if err != nil {
			return nil, err
		}
		if c := e.current(); c != nil {
			return c, nil
		}
		c, err := m.await(ctx, e)
		if errors.Is(err, store.ErrStopped) && attempt < startAttempts && !e.failedForGood() {
			continue // for example, it was dropped while starting
		}
		return c, err
	}
}

// CollectionIfSynced returns the collection of res in enc if it is synced, and marks it as used.
// Otherwise it returns nil, and a second call within a minute starts the collection in the
// background, because a resource that is read repeatedly is worth a watch.
func (m *Manager) CollectionIfSynced(res *source.Resource, enc api.Encoding) *Collection {
	key := collectionKey{res.GroupVersionResource, enc}
	e := m.lookup(key)
	if e == nil && m.wantedAgain(key) {
		_, _ = m.find(res, enc)
		return nil
	}
	if c := e.readable(res); c != nil && c.State().Phase == reflector.Synced {
		return c
	}
	return nil
}

// ReadableCollection returns the collection of res in enc if it is complete, stale or not. It does
// not start one.
func (m *Manager) ReadableCollection(res *source.Resource, enc api.Encoding) *Collection {
	return m.lookup(collectionKey{res.GroupVersionResource, enc}).readable(res)
}

// PeekCollection is ReadableCollection, but it does not count as a use of the collection.
func (m *Manager) PeekCollection(res *source.Resource, enc api.Encoding) *Collection {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.collections[collectionKey{res.GroupVersionResource, enc}].readable(res)
}

// Start starts the collection of res in enc in the background, if there is none.
func (m *Manager) Start(res *source.Resource, enc api.Encoding) {
	_, _ = m.find(res, enc) // readers get the error
}

// wantedAgain records that key was wanted and reports whether it was wanted within wantedFor.
func (m *Manager) wantedAgain(key collectionKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, last := time.Now(), m.mu.wanted[key]
	m.mu.wanted[key] = now
	return now.Sub(last) < wantedFor
}

// wantedFor is how long it is remembered that a collection was wanted.
const wantedFor = time.Minute

// startAttempts is how often a caller waits again because the collection that it waited for was
// stopped.
const startAttempts = 3

// lookup returns the entry of key, nil if there is none, and marks it as used.
func (m *Manager) lookup(key collectionKey) *entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.mu.collections[key]
	if e != nil && !e.used.Load() {
		e.used.Store(true) // under the lock, so that the janitor sees it
	}
	return e
}

// find returns the entry of res in enc and creates it if necessary. Its definition is compatible
// with res.
func (m *Manager) find(res *source.Resource, enc api.Encoding) (*entry, error) {
	key := collectionKey{res.GroupVersionResource, enc}
	e := m.lookup(key)
	if e == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.mu.closed {
			return nil, store.ErrManagerClosed
		}
		e = m.mu.collections[key] // not nil if another caller was faster
	}
	switch {
	case e != nil && e.feed.Resource.IsCompatible(res):
		return e, nil
	case e != nil, res.IsRetired(): // under the lock, so that Drop finds what was created before
		return nil, source.ErrRedefined
	}
	e = newEntry(m, res, enc)
	m.mu.collections[key] = e
	m.panics.Go(&m.work, "feed", func() { m.run(key, e) })
	return e, nil
}

// run is the goroutine of an entry.
func (m *Manager) run(key collectionKey, e *entry) {
	defer close(e.done)
	reason := e.run()
	level := slog.LevelInfo
	if errors.Is(reason, store.ErrIdle) || errors.Is(reason, store.ErrManagerClosed) {
		level = slog.LevelDebug
	}
	e.feed.Log.Log(context.Background(), level, "collection stopped", "reason", reason)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.stopped = time.Now()
	if errors.Is(reason, store.ErrRewound) {
		// Once is an accident. A source that does it again has unreliable versions, and must not be
		// listed again and again.
		e.failed.Store(e.stopped.Sub(m.mu.rewound[key]) < failedFor)
		m.mu.rewound[key] = e.stopped
	}
	if m.mu.collections[key] == e && !e.failedForGood() {
		delete(m.mu.collections, key)
	}
}

// await waits for the collection to start, unless too many callers wait.
func (m *Manager) await(ctx context.Context, e *entry) (*Collection, error) {
	if m.waiting.Add(1) > int64(m.limits.StartWaiters) {
		m.waiting.Add(-1)
		m.metrics.rejected.Inc()
		return nil, api.NewTooManyRequests("the cache is starting, please try again later", retrySeconds)
	}
	defer m.waiting.Add(-1)
	return e.await(ctx)
}

// Drop stops the collections of gvr in all encodings, and ends their watches cleanly, as the
// upstream ends its own then. It returns when they have stopped. The next caller of Collection
// starts a new one, with a Resource that is not retired.
func (m *Manager) Drop(gvr schema.GroupVersionResource, reason error) {
	m.stop(fmt.Errorf("%w: %w", store.ErrDropped, reason), func(e *entry) bool { return e.feed.Resource.GroupVersionResource == gvr })
}

// stop stops the chosen entries, waits for them and returns them.
func (m *Manager) stop(reason error, which func(*entry) bool) (stopped []*entry) {
	m.mu.Lock()
	for key, e := range m.mu.collections {
		if which(e) {
			delete(m.mu.collections, key)
			stopped = append(stopped, e)
			e.cancel(reason)
		}
	}
	m.mu.Unlock()
	for _, e := range stopped {
		<-e.done
	}
	return stopped
}

// discardOtherHistory discards all loaded collections, and prevents further loading, after one of
// them turned out to be of a past that the source does not have. If broke is not zero, this was
// found after a watch broke at that time, and all collections that were listed before are
// discarded, too. They are filled again.
func (m *Manager) discardOtherHistory(broke time.Time) {
	k := m.checkpointer
	if fresh := k != nil && k.SetOtherHistory(); !fresh && broke.IsZero() {
		return
	}
	m.panics.Go(&m.work, "background", func() { // the caller is a reflector, which may be one of those
		m.rewind(func(e *entry) bool { return e.feed.HeldBefore(broke) })
	})
}

// Rewind ends all watches with 410, as after a restore of the cluster, and fills the collections again.
func (m *Manager) Rewind() { m.rewind(func(*entry) bool { return true }) }

func (m *Manager) rewind(which func(*entry) bool) {
	for _, e := range m.stop(store.ErrRewound, which) {
		_, _ = m.find(e.feed.Resource, e.feed.Encoding)
	}
}

// tidy is the janitor. It stops idle collections and makes the others drop what they do not need,
// until the Manager is closed.
func (m *Manager) tidy() {
	ticker := time.NewTicker(min(tidyPeriod, m.limits.IdleAfter))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-m.ctx.Done():
			return
		}
		now := time.Now()
		for _, e := range m.entries() {
			c := e.collection.Load()
			if c == nil {
				continue
			}
			c.store.DropUnused(now)
			c.columns.DropUnused(now)
			if c.store.Mux().Stats().Watchers > 0 {
				e.used.Store(true)
			}
		}
		m.stop(store.ErrIdle, func(e *entry) bool {
			if !e.stopped.IsZero() {
				return now.Sub(e.stopped) >= failedFor
			}
			// During an outage nobody could start the collection again.
			if e.used.Swap(false) || m.outage.IsDown() {
				e.lastUsed = now
			}
			return now.Sub(e.lastUsed) >= m.limits.IdleAfter
		})
	}
}

func (m *Manager) entries() []*entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.SortedFunc(maps.Values(m.mu.collections), func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.feed.Resource.Group, b.feed.Resource.Group),
			cmp.Compare(a.feed.Resource.Resource, b.feed.Resource.Resource),
			cmp.Compare(a.feed.Resource.Version, b.feed.Resource.Version),
			cmp.Compare(a.feed.Encoding, b.feed.Encoding),
		)
	})
}

// Checkpoints lists the collections that have checkpoints: those that were in use when the last
// process ended. See checkpoint.Checkpointer.List. A disk that does not respond blocks it; after
// the end of ctx it changes nothing.
func (m *Manager) Checkpoints(ctx context.Context) []checkpoint.Saved {
	if m.checkpointer == nil {
		return nil
	}
	return m.checkpointer.List(ctx, m.panics)
}

// ReleaseCheckpoints saves what has changed and then ends the use of Options.Checkpoints.Storage,
// so that another Manager may use them. Collections are served as before. It returns false if the
// disk does not respond. There must be a Storage.
func (m *Manager) ReleaseCheckpoints() bool {
	if !m.checkpointer.Finish() {
		return false
	}
	m.checkpointer.HandOver()
	for _, e := range m.entries() {
		if e.feed.Checkpoint != nil {
			e.feed.Checkpoint.Release()
		}
	}
	return true
}

// ForgetCheckpoint removes one of Checkpoints, of a collection that will not come back and does not
// exist now.
func (m *Manager) ForgetCheckpoint(c checkpoint.Saved) {
	m.checkpointer.Forget(c)
}

// checkpointed returns the collections that are saved.
func (m *Manager) checkpointed() (all []checkpoint.Collection) {
	for _, e := range m.entries() {
		if c := e.current(); c != nil && e.feed.Checkpoint != nil {
			all = append(all, checkpoint.Collection{Checkpoint: e.feed.Checkpoint, Store: c.store, Context: e.ctx, Note: e.feed.Note})
		}
	}
	return all
}

// CollectionStatus is the status of one collection.
type CollectionStatus struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
	State    reflector.State
	RV       uint64
	store.Sizes
	// Watches are the figures of watches and history.
	Watches watchmux.Stats
	// Columns is the number of query columns, ColumnBytes an upper bound of what they keep from
	// being freed.
	Columns     int
	ColumnBytes int64
	// Checked is when the collection was last listed, or found equal to the upstream; zero while it
	// is starting. LastCheck is the result of the last comparison, nil before the first.
	Checked   time.Time
	LastCheck *selfcheck.Report
}

// Status lists all collections, ordered by resource and encoding.
func (m *Manager) Status() []CollectionStatus {
	var all []CollectionStatus
	for _, e := range m.entries() {
		status := CollectionStatus{
			Resource: e.feed.Resource.GroupVersionResource,
			Encoding: e.feed.Encoding,
			State:    e.state(),
		}
		if c := e.collection.Load(); c != nil {
			status.RV, status.Sizes, status.Watches = c.RV(), c.store.Sizes(), c.store.Mux().Stats()
			status.Columns, status.ColumnBytes = c.columns.Size(status.Churn)
			status.Checked = time.Unix(0, e.checked.Load())
		}
		status.LastCheck = e.lastCheck.Load()
		all = append(all, status)
	}
	return all
}

// CountObjects returns the number and the size of the objects of a resource, in protobuf if they are
// cached so. known is false if they are not cached.
func (m *Manager) CountObjects(gr schema.GroupResource) (objects, bytes int64, known bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.mu.collections {
		c := e.collection.Load()
		if e.feed.Resource.GroupResource() != gr || c == nil || known && e.feed.Encoding != api.Protobuf {
			continue
		}
		v := c.Snapshot()
		objects, bytes, known = int64(v.Len()), v.Bytes(), true
	}
	return objects, bytes, known
}

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
	// wait for collections to start; the others must retry. Defaults: 4 and 1,000.
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
