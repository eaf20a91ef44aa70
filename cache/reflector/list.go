package reflector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// listing is a list that is being received.
type listing struct {
	held   *store.Snapshot // the state before a relist, nil the first time
	seenRV uint64          // the version that readers saw when the list began
	tree   *store.Tree
	began  time.Time
	begun  bool // the source has begun to send it
	// complete is set when the store has taken over the list.
	complete bool
	// release frees the slot for lists. It may be called more than once.
	release func()
}

// startList waits for a slot, because a list costs the source and the network much, and after an
// outage every reflector may need one.
func (f *Reflector) startList(ctx context.Context) (*listing, error) {
	select {
	case f.Listing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l := &listing{tree: store.NewTree(), began: time.Now(), release: sync.OnceFunc(func() { <-f.Listing })}
	if f.store != nil {
		l.held, l.seenRV = f.store.Current(), f.store.LatestRV()
	}
	return l, nil
}

// item decodes an object of the list. It returns the object that is held already if the bytes are
// equal: that keeps what was derived from it, and a relist without changes takes no memory.
func (f *Reflector) item(l *listing, raw []byte) (*object.Object, error) {
	o, err := f.Decode(raw)
	if err != nil || l.held == nil {
		return o, err
	}
	if held := l.held.Get(o.Key); held != nil && held.RV == o.RV && bytes.Equal(held.Raw, o.Raw) {
		return held, nil
	}
	return o, nil
}

// initial handles an event before the end of the initial events. These are ADDED events, but later
// changes may follow before the bookmark. It returns true when the list is complete.
func (f *Reflector) initial(l *listing, ev source.Event) (done bool, err error) {
	l.begun = true
	if ev.Type == source.WatchAccepted {
		return false, nil
	}
	if ev.Type == api.Bookmark {
		f.keepBookmark(ev)
		if !ev.InitialEventsEnd {
			return false, nil
		}
		if ev.ResourceVersion == 0 {
			return false, source.ErrNoVersion
		}
		f.last = ev.ResourceVersion
		f.health.live() // first: callers that wait for the list look at once
		return true, f.complete(l, ev.ResourceVersion)
	}
	o, err := f.item(l, ev.Object)
	if err != nil {
		return false, err
	}
	if ev.Type == api.Deleted {
		l.tree.Delete(o)
	} else {
		l.tree.Load(o) // fast for ascending keys, correct for any order
	}
	return false, nil
}

// listPages lists in pages of one version, which it returns. If that version expires meanwhile, or
// a page has another one, it lists everything at once.
func (f *Reflector) listPages(ctx context.Context, l *listing) (rv uint64, err error) {
	visit := func(raw []byte) error {
		o, err := f.item(l, raw)
		if err == nil {
			l.tree.Load(o)
		}
		return err
	}
	opts := source.ListOptions{Limit: DefaultPageSize}
	for {
		meta, err := f.Source.List(ctx, f.Resource, f.Encoding, opts, visit)
		first := opts.Continue == ""
		switch {
		case err != nil && !first && source.IsExpired(err), err == nil && !first && meta.ResourceVersion != rv:
			l.tree = store.NewTree()
			opts = source.ListOptions{}
			continue
		case err != nil:
			return 0, f.wrapListError(ctx, err)
		case meta.Continue == "":
			return meta.ResourceVersion, nil
		case opts.Limit == 0:
			return 0, f.wrapListError(ctx, errPaged)
		}
		opts, rv = source.ListOptions{Limit: DefaultPageSize, Continue: meta.Continue}, meta.ResourceVersion
	}
}

// errPaged means that the upstream sent a page although the whole list was requested.
var errPaged = errors.New("the upstream returned a page of a list requested without a limit")

func (f *Reflector) wrapListError(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrDecode) {
		return err
	}
	return fmt.Errorf("listing: %w", err)
}

// complete makes the list, which is complete at rv, the state of the store. The first one makes the
// store.
func (f *Reflector) complete(l *listing, rv uint64) error {
	if rv == 0 {
		return source.ErrNoVersion
	}
	l.complete = true
	f.broken, f.brokeAt = 0, time.Time{}
	f.listedAt.Store(&l.began)
	f.provisional = !f.Resource.Changed.IsZero() && l.began.Sub(f.Resource.Changed) < source.RedefinitionTime
	if f.provisional {
		f.uncertain.Store(true) // before anybody reads the list
	}
	if f.store == nil {
		f.store = f.First(&store.List{Tree: l.tree, RV: rv})
	} else if rv < l.seenRV {
		return fmt.Errorf("%w: from %d to %d", store.ErrRewound, l.seenRV, rv)
	} else if err := f.store.Replace(l.tree, rv); err != nil {
		return err
	}
	f.relist = false
	f.publish(l.began)
	return nil
}

// ListsVersions reports whether the source is a VersionLister that, as far as is known, has lists
// of the resource's versions.
func (f *Reflector) ListsVersions() bool {
	_, ok := f.Source.(source.VersionLister)
	return ok && !f.NoVersions.Load()
}

// ListVersions calls VersionLister.ListVersions. The error wraps ErrUnsupported if the source has
// no usable lists of the resource's versions, which is remembered. It is safe for concurrent use.
func (f *Reflector) ListVersions(ctx context.Context, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	if !f.ListsVersions() {
		return source.ListMeta{}, source.ErrUnsupported
	}
	meta, err := f.Source.(source.VersionLister).ListVersions(ctx, f.Resource, opts, visit)
	if errors.Is(err, source.ErrUnsupported) {
		f.NoVersions.Store(true)
	}
	return meta, err
}

// ListVersionsPage lists one page of keys and versions. Without ListsVersions it lists the objects
// instead.
func (f *Reflector) ListVersionsPage(ctx context.Context, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	meta, err := f.ListVersions(ctx, opts, visit)
	if !errors.Is(err, source.ErrUnsupported) {
		return meta, err
	}
	return f.Source.List(ctx, f.Resource, f.Encoding, opts, func(raw []byte) error {
		o, err := f.Decode(raw)
		if err != nil {
			return err
		}
		return visit(o.Key, o.RV)
	})
}
