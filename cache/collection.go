package cache

import (
	"context"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Collection holds all objects of one resource in one encoding, fed by one
// upstream watch. It has been whole from the moment on at which it came to be: it
// is made of a complete list and in no other way. A Manager makes and owns it. All
// methods are safe for concurrent use. Its version never goes back: when the
// upstream's does, the collection stops and the Manager makes another.
type Collection struct {
	resource *source.Resource
	formed   *form.Resource // of resource
	encoding api.Encoding
	limits   *Limits
	store    *store.Store
	columns  query.Columns // of queries
	feed     *reflector.Reflector
	end      *ending
	checker  *freshness.Checker
	builds   sync.WaitGroup // of indexes
}

// newCollection makes the collection of e, which is all of first.
func newCollection(e *entry, first *store.List) *Collection {
	c := &Collection{
		resource: e.resource,
		formed:   e.resource.Form(),
		encoding: e.encoding,
		limits:   e.parts.limits,
		feed:     e.feed,
		end:      &e.end,
	}
	l, spawn := e.parts.limits, func(f func()) { e.parts.panics.Go(&c.builds, "feed", f) }
	c.store = store.New(e.encoding, store.Options{
		History:       watchmux.Options{MaxAge: l.HistoryAge, MaxBytes: l.HistoryBytes, MaxEvents: l.HistoryEvents},
		SnapshotAge:   l.SnapshotAge,
		SnapshotBytes: l.SnapshotBytes,
		Indexes:       l.Indexes,
		Contents:      e.parts.content,
		Spawn:         spawn,
		Grown:         c.columns.Grown,
		Stopped:       e.end.closed,
		StopReason:    e.end.reason,
	})
	c.columns.Init(c.store, l.QueryBytes, l.SnapshotAge, spawn)
	c.store.Install(first)
	c.checker = freshness.New(freshness.Options{
		Store: c.store, Source: e.parts.source, Resource: e.resource, Encoding: e.encoding,
		Names: e.feed.Names, Reflector: e.feed, Rounds: e.metrics.fresh,
	})
	return c
}

// Resource is what the collection holds.
func (c *Collection) Resource() *source.Resource { return c.resource }

// Encoding is the encoding of the collection's objects.
func (c *Collection) Encoding() api.Encoding { return c.encoding }

// ListKind is the kind and apiVersion of the resource's lists (PodList, v1), as
// the upstream says them.
func (c *Collection) ListKind() (kind, apiVersion string) {
	k := c.feed.ListMeta()
	return k.Kind, k.APIVersion
}

// Warnings are the values of the Warning headers that the upstream sends with
// every answer of the resource: that its version is deprecated. They must not be
// modified.
func (c *Collection) Warnings() []string {
	return c.feed.ListMeta().Warnings
}

// RV is the version that the collection holds.
func (c *Collection) RV() uint64 { return c.store.LatestRV() }

// View is the current state: O(1), the same pointer while nothing changes.
func (c *Collection) View() *store.View { return c.store.Latest() }

// ViewAt is the state at exactly rv: the current one, a retained one, or one
// made by undoing history, which is then retained. The error is an *ExpiredError
// when that is no longer possible (or never was, between the versions around a
// relist), a *TooLargeError when rv is above the collection's version (WaitFor
// first). It must not be called from a mux's notify.
func (c *Collection) ViewAt(rv uint64) (*store.View, error) {
	return c.store.At(rv, time.Now())
}

// Retain keeps v for ViewAt, within the limits of age and bytes, so that a
// chunked list can go on from the version at which it began.
func (c *Collection) Retain(v *store.View) {
	c.store.Retain(v, time.Now())
}

// Select returns the objects that f matches, in key order, and the version at
// which they are the whole answer. ok is false when no index helps: the caller
// then scans a View; and when ctx has ended.
func (c *Collection) Select(ctx context.Context, f *object.Filter) (objs []*object.Object, rv uint64, ok bool) {
	return c.store.Select(ctx, f, c.resource.Namespaced, time.Now())
}

// WantShard says that a shard is being read: what finds its objects is made, for the reads
// to come, or kept, where that pays.
func (c *Collection) WantShard(s *shard.Selector) {
	c.store.WantShard(s, time.Now())
}

// WaitFor returns when the collection holds rv. The error is a *TooLargeError
// after timeout (at once if that is 0), the context's error, or the reason why
// the collection stopped.
func (c *Collection) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	return c.checker.WaitFor(ctx, rv, timeout)
}

// Fresh returns a version which the collection holds and which is at least as
// new as every write that the upstream acknowledged before the call. Callers
// share rounds, never one that began before they came. The error wraps
// ErrUnsupported when the source cannot tell its version; it is a *TooLargeError
// when the feed does not bring it in time, or does not confirm what was kept over a restart:
// versions alone do not tell that the upstream has the same past.
func (c *Collection) Fresh(ctx context.Context) (uint64, error) {
	return c.FreshFor(ctx, &freshness.Asked{})
}

// FreshFor is Fresh that counts what it asks the source for.
func (c *Collection) FreshFor(ctx context.Context, asked *freshness.Asked) (uint64, error) {
	rv, err := c.checker.FreshFor(ctx, asked)
	if err == nil && c.Unconfirmed() {
		err = c.store.Wait(ctx, c.feed.WhenConfirmed(), confirmWait, rv)
	}
	return rv, err
}

// FreshAtOnce is Fresh for a PromptSource, which needs no request and nobody to share it with. With
// any other source the error is ErrUnsupported.
func (c *Collection) FreshAtOnce(ctx context.Context) (uint64, error) {
	return c.checker.FreshAtOnce(ctx)
}

// Named reports whether the upstream names the versions of objects for Revalidate, as far as is
// known, and soon enough.
func (c *Collection) Named() bool { return c.checker.Named() }

// WaitDeleted returns when the collection has seen the object with uid at key go: none of its
// later states has it. An object that is absent and was not seen to go is an error at once,
// because the feed may yet bring its creation. The other errors are those of WaitFor.
func (c *Collection) WaitDeleted(ctx context.Context, key, uid string, timeout time.Duration) error {
	return c.store.WaitDeleted(ctx, key, uid, timeout)
}

// confirmWait is for how long readers of the most recent state wait until it is confirmed.
const confirmWait = 3 * time.Second

// Watch is Mux().Watch.
func (c *Collection) Watch(from uint64, f *object.Filter, notify func()) (*watchmux.Watcher, error) {
	return c.store.Mux().Watch(from, f, notify)
}

// Follow returns View and a watcher of all events after it.
func (c *Collection) Follow(f *object.Filter, notify func()) (*store.View, *watchmux.Watcher, error) {
	return c.store.Follow(f, notify)
}

// Mux fans out the collection's events.
func (c *Collection) Mux() *watchmux.Mux { return c.store.Mux() }

// BookmarkTemplate is the object of a bookmark as the upstream sent it, in the
// collection's encoding (protobuf: the bare message) and with whatever version
// and annotation it then had, nil before the first; for encoding.Codec.
// LearnBookmark. It
// must not be modified.
func (c *Collection) BookmarkTemplate() []byte {
	return c.feed.BookmarkTemplate()
}

// State says how the collection is doing.
func (c *Collection) State() reflector.State {
	if reason := c.end.reason(); reason != nil {
		return reflector.State{Phase: reflector.Stopped, Err: reason}
	}
	return c.feed.State(c.limits.StaleAfter)
}

// Unconfirmed reports whether the collection is what was kept over a restart, and the source
// has not said yet that it is of the same cluster, or what has changed (KeepOptions).
func (c *Collection) Unconfirmed() bool { return c.feed.IsUnconfirmed() }

// Closed is closed when the collection has stopped for good; State then has the
// reason. Its views stay readable.
func (c *Collection) Closed() <-chan struct{} { return c.end.closed }

// tidy drops what has been unused for long.
func (c *Collection) tidy(now time.Time) {
	c.store.DropUnused(now)
	c.columns.DropUnused(now)
}

// Columns are the columns that queries have made of the collection.
func (c *Collection) Columns() *query.Columns { return &c.columns }

// Freshness tells how new the collection is.
func (c *Collection) Freshness() *freshness.Checker { return c.checker }

// close ends the collection's watchers with reason and drops what is kept for queries.
func (c *Collection) close(reason error) {
	c.store.Close(reason)
	c.columns.Close()
}

// collectionSizes are the figures of the metrics.
type collectionSizes struct {
	store.Sizes
	columns     int
	columnBytes int64
}

func (c *Collection) sizes() collectionSizes {
	z := collectionSizes{Sizes: c.store.Sizes()}
	z.columns, z.columnBytes = c.columns.Size(z.Churn)
	return z
}
