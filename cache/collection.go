package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/cache/backfill"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Collection holds all objects of one resource in one encoding, kept up to date by one upstream
// watch. It starts from a complete list or a loaded checkpoint, so it is complete from the
// beginning. A Manager creates and owns it. Its version never goes back: when the upstream's does,
// the collection stops, and the next reader starts another one. All methods are safe for concurrent
// use.
type Collection struct {
	entry   *entry
	store   *store.Store
	columns query.Columns // of queries
	checker *freshness.Checker
	history *backfill.Backfiller
	builds  sync.WaitGroup // of indexes and of the history
}

// Resource returns the collection's resource.
func (c *Collection) Resource() *source.Resource { return c.entry.feed.Resource }

// Encoding returns the encoding of the collection's objects.
func (c *Collection) Encoding() api.Encoding { return c.entry.feed.Encoding }

// ListMeta returns the kind and apiVersion of the resource's lists, and the warnings that the
// upstream sends with every response of the resource. It must not be modified.
func (c *Collection) ListMeta() *source.ListMeta { return c.entry.feed.ListMeta() }

// RV returns the version that the collection holds.
func (c *Collection) RV() uint64 { return c.store.LatestRV() }

// Snapshot returns the latest state. It is O(1) and returns the same pointer while nothing changes.
func (c *Collection) Snapshot() *store.Snapshot { return c.store.Latest() }

// SnapshotAt returns the state at exactly rv, see store.Store.At.
func (c *Collection) SnapshotAt(rv uint64) (*store.Snapshot, error) {
	return c.store.At(rv, time.Now())
}

// Retain keeps v for SnapshotAt, within the limits of age and bytes, so that a chunked list can
// continue at its version.
func (c *Collection) Retain(v *store.Snapshot) {
	c.store.Retain(v, time.Now())
}

// Select returns the objects of a snapshot that f matches, in key order, and that snapshot, which
// is not older than Snapshot. It is nil if no index helps, so that the caller has to scan a
// Snapshot, and if ctx has ended.
func (c *Collection) Select(ctx context.Context, f *object.Filter) (objs []*object.Object, at *store.Snapshot) {
	return c.store.Select(ctx, f, c.entry.feed.Resource.Namespaced, time.Now())
}

// WantShard records that a shard is being read, so that an index is built or kept where that pays.
func (c *Collection) WantShard(s *shard.Selector) {
	c.store.WantShard(s, time.Now())
}

// WaitFor returns when the collection holds rv. The error is a *TooLargeError after timeout (at
// once if that is 0), the cause of ctx, or the reason why the collection stopped.
func (c *Collection) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	return c.checker.WaitFor(ctx, rv, timeout)
}

// Fresh is Checker.Fresh, for callers that do not count its requests.
func (c *Collection) Fresh(ctx context.Context) (uint64, error) {
	return c.checker.Fresh(ctx, &freshness.Cost{})
}

// WaitDeleted returns when the collection has seen the deletion of the object with this key and
// uid, so that no later state has it. If the object is absent and its deletion was not seen, it
// fails at once, because the watch may yet bring the creation. The other errors are those of
// WaitFor.
func (c *Collection) WaitDeleted(ctx context.Context, key, uid string, timeout time.Duration) error {
	return c.store.WaitDeleted(ctx, key, uid, timeout)
}

// Follow returns Snapshot and a watcher of all events after it.
func (c *Collection) Follow(f *object.Filter, notify func()) (*store.Snapshot, *watchmux.Watcher, error) {
	return c.store.Follow(f, notify)
}

// CheckInvariants is CheckInvariants of store.Store. It is for tests.
func (c *Collection) CheckInvariants() string { return c.store.CheckInvariants() }

// Mux returns the multiplexer of the collection's events.
func (c *Collection) Mux() *watchmux.Mux { return c.store.Mux() }

// Backfill extends the history backwards, so that a watch with the filter f can start at rv. It waits
// for requests to the upstream, see backfill.Backfiller.Extend.
func (c *Collection) Backfill(ctx context.Context, rv uint64, f *object.Filter) error {
	return c.history.Extend(ctx, rv, f.IsMutable())
}

// BookmarkTemplate returns the object of a bookmark as the upstream sent it, in the collection's
// encoding (protobuf: the bare message) and with the version and annotations of that bookmark, for
// encoding.Codec.LearnBookmark. It is nil before the first bookmark and must not be modified.
func (c *Collection) BookmarkTemplate() []byte {
	return c.entry.feed.BookmarkTemplate()
}

// State returns the collection's phase and age.
func (c *Collection) State() reflector.State { return c.entry.state() }

// Unconfirmed reports whether the collection was loaded from its checkpoint, and the source has not
// confirmed yet that it is the same cluster, or what has changed since, see checkpoint.Options.
func (c *Collection) Unconfirmed() bool { return c.entry.feed.IsUnconfirmed() }

// Closed is closed when the collection has stopped; State then has the reason. Its snapshots stay
// readable.
func (c *Collection) Closed() <-chan struct{} { return c.entry.closed }

// Columns returns the columns that queries have made of the collection.
func (c *Collection) Columns() *query.Columns { return &c.columns }

// Freshness returns what proves that the collection is current.
func (c *Collection) Freshness() *freshness.Checker { return c.checker }

// entry is one resource in one encoding from its first use to its end. Nothing can be read from an
// entry. Only a Collection can be read, and it is made of the first complete list, or of a
// loaded checkpoint:
//
//	starting ---- first complete list ----> synced: there is a Collection
//	    \                                      |
//	     +-------------> stopped <-------------+
type entry struct {
	manager *Manager
	feed    *reflector.Reflector
	metrics *metrics
	made    *Collection // not readable yet; belongs to the reflector
	began   time.Time

	ctx    context.Context // its cause is the reason for stopping
	cancel context.CancelCauseFunc
	synced chan struct{}         // closed when there is a Collection
	over   atomic.Pointer[error] // why the collection has stopped, nil before that
	closed chan struct{}         // closed after over is set, when the watchers have ended
	done   chan struct{}         // closed when all goroutines have ended

	collection atomic.Pointer[Collection]
	used       atomic.Bool // since the janitor last looked
	// lookedAt is when the last check of the collection began, or when the entry was made. checked
	// is when a check last found no difference. Both are in Unix nanoseconds.
	lookedAt, checked atomic.Int64
	lastCheck         atomic.Pointer[selfcheck.Report]

	mu struct {
		sync.Mutex
		// attempt is closed, and replaced, when an attempt to start has failed.
		attempt chan struct{}
		failed  int   // number of failed attempts
		err     error // of the last one
	}

	// lastUsed is when the janitor last found the entry used, stopped when it stopped. Both are
	// guarded by Manager.mu.
	lastUsed, stopped time.Time
	failed            atomic.Bool // see failedForGood
}

func newEntry(m *Manager, res *source.Resource, enc api.Encoding) *entry {
	now := time.Now()
	e := &entry{
		manager:  m,
		began:    now,
		synced:   make(chan struct{}),
		closed:   make(chan struct{}),
		done:     make(chan struct{}),
		lastUsed: now,
	}
	e.ctx, e.cancel = context.WithCancelCause(m.ctx)
	e.mu.attempt = make(chan struct{})
	e.used.Store(true)
	e.lookedAt.Store(now.UnixNano())
	e.metrics = m.metrics.of(res, enc)
	e.feed = reflector.New(reflector.Options{
		Source: m.source, Resource: res, Encoding: enc,
		Log:      m.log.With("group", res.Group, "resource", res.Resource, "encoding", enc.String()),
		Restarts: e.metrics.restarts, Events: e.metrics.events, StaleAfter: m.limits.StaleAfter,
		Listing: m.listing, Outage: m.outage, Panics: m.panics, Checkpointer: m.checkpointer,
		First: e.firstList, Ready: e.ready, Failed: e.attemptFailed, OnOtherHistory: m.discardOtherHistory,
	})
	return e
}

// run keeps the collection up to date until its end and returns the reason.
func (e *entry) run() error {
	e.feed.Log.Debug("collection starts")
	var err error
	if panicked := e.manager.panics.Run("feed", func() { err = e.feed.Run(e.ctx) }); panicked != nil {
		err = panicked
	}
	e.cancel(err)
	e.over.Store(&err)
	c := e.collection.Load()
	if c != nil {
		c.store.Close(err)
		c.columns.Close()
		c.history.Close()
	}
	if e.feed.Checkpoint != nil {
		e.feed.Checkpoint.Close(e.manager.panics, err)
	}
	close(e.closed)
	if c != nil {
		c.builds.Wait()
	}
	return err
}

// firstList makes the Collection of the first complete list, and returns the store to keep up to
// date.
func (e *entry) firstList(first *store.List) *store.Store {
	c := &Collection{entry: e}
	l, spawn := &e.manager.limits, func(f func()) { e.manager.panics.Go(&c.builds, "feed", f) }
	c.store = store.New(e.feed.Encoding, store.Options{
		History:       watchmux.Options{MaxAge: l.HistoryAge, MaxBytes: l.HistoryBytes, MaxEvents: l.HistoryEvents},
		SnapshotAge:   l.SnapshotAge,
		SnapshotBytes: l.SnapshotBytes,
		Indexes:       l.Indexes,
		Contents:      &e.manager.content,
		Spawn:         spawn,
		Grown:         c.columns.Grown,
		Stopped:       e.closed,
		StopReason:    e.reason,
	})
	c.columns.Init(c.store, l.QueryBytes, spawn)
	c.store.Install(first)
	c.checker = freshness.New(e.feed, c.store, e.metrics.fresh)
	c.history = backfill.New(backfill.Options{
		Feed: e.feed, Store: c.store, Slots: e.manager.backfills, Context: e.ctx, Spawn: spawn,
		Results: e.metrics.backfills, Events: e.metrics.backfilled,
	})
	e.made = c
	return c.store
}

// ready makes the Collection readable. loaded is true if it comes from a checkpoint.
func (e *entry) ready(loaded bool) {
	c, took := e.made, time.Since(e.began)
	e.metrics.syncSeconds.WithLabelValues().Observe(took.Seconds())
	v := c.Snapshot()
	e.feed.Log.Info("collection synced", "objects", v.Len(), "bytes", v.Bytes(),
		"seconds", took.Seconds(), "resourceVersion", v.RV())
	e.checked.Store(time.Now().UnixNano()) // it was just listed or confirmed
	if loaded {
		e.lookedAt.Store(0) // so that it is checked next
	}
	e.collection.Store(c)
	close(e.synced)
}

// attemptFailed is called when an attempt has failed before ready.
func (e *entry) attemptFailed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.failed++
	e.mu.err = err
	close(e.mu.attempt)
	e.mu.attempt = make(chan struct{})
}

// reason returns why the collection has stopped, nil before that.
func (e *entry) reason() error {
	if err := e.over.Load(); err != nil {
		return *err
	}
	return nil
}

// current returns the Collection if it can be read, that is, if it is synced and not stopped.
func (e *entry) current() *Collection {
	if e.over.Load() != nil {
		return nil
	}
	return e.collection.Load()
}

// readable is current for readers of res. e may be nil.
func (e *entry) readable(res *source.Resource) *Collection {
	if e == nil || !e.feed.Resource.IsCompatible(res) {
		return nil
	}
	return e.current()
}

// await returns the Collection when it is synced. It fails if the entry has stopped, or is not
// likely to be synced soon: an attempt was rejected, or two have failed.
func (e *entry) await(ctx context.Context) (*Collection, error) {
	for {
		e.mu.Lock()
		attempt, failed, err := e.mu.attempt, e.mu.failed, e.mu.err
		e.mu.Unlock()
		if reason := e.reason(); reason != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrStopped, reason)
		}
		if c := e.collection.Load(); c != nil {
			return c, nil
		}
		if failed > 1 || failed > 0 && source.IsRejected(err) {
			return nil, fmt.Errorf("the cache cannot be filled: %w", err)
		}
		select {
		case <-e.synced:
		case <-attempt:
		case <-e.closed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// state returns the entry's phase.
func (e *entry) state() reflector.State {
	if reason := e.reason(); reason != nil {
		return reflector.State{Phase: reflector.Stopped, Err: reason}
	}
	if e.collection.Load() != nil {
		return e.feed.State()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return reflector.State{Phase: reflector.Starting, Since: e.began, Err: e.mu.err}
}

// failedForGood reports whether the collection stopped for a reason that its successor would meet
// as well. The entry then stays for failedFor, so that callers are rejected without a list for each
// of them.
func (e *entry) failedForGood() bool {
	var panicked *contain.Error
	err := e.reason()
	return err != nil && (e.failed.Load() || errors.Is(err, reflector.ErrDecode) || errors.As(err, &panicked))
}
