package cache

import (
	"context"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Collection holds all objects of one resource in one encoding, kept up to date by one upstream
// watch. It is made of a complete list or a loaded checkpoint, so it is complete from the
// beginning. A Manager creates and owns it. Its version never goes back: when the upstream's does,
// the collection stops, and the next reader starts another one. All methods are safe for concurrent
// use.
type Collection struct {
	entry   *entry
	store   *store.Store
	columns query.Columns // of queries
	checker *freshness.Checker
	builds  sync.WaitGroup // of indexes
}

// Resource returns the collection's resource.
func (c *Collection) Resource() *source.Resource { return c.entry.feed.Resource }

// Encoding returns the encoding of the collection's objects.
func (c *Collection) Encoding() api.Encoding { return c.entry.feed.Encoding }

// ListKind returns the kind and apiVersion of the resource's lists (PodList, v1), as the upstream
// sends them.
func (c *Collection) ListKind() (kind, apiVersion string) {
	k := c.entry.feed.ListMeta()
	return k.Kind, k.APIVersion
}

// Warnings returns the values of the Warning headers that the upstream sends with every response of
// the resource, for example because its version is deprecated. They must not be modified.
func (c *Collection) Warnings() []string {
	return c.entry.feed.ListMeta().Warnings
}

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

// Select returns the objects of a snapshot that f matches, in key order, and that snapshot, which is
// not older than Snapshot. It is nil if no index helps, so that the caller has to scan a Snapshot,
// and if ctx has ended.
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
