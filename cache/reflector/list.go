package reflector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// listing is a list that is being received.
type listing struct {
	held  *store.Snapshot // the state before a relist, nil the first time
	shown uint64          // the version that readers saw when the list began
	tree  *store.Tree
	began time.Time
	begun bool // the source has begun to send it
	// complete is set when the store has taken over the list.
	complete bool
	// release frees the slot for lists. It may be called more than once.
	release func()
}

// whole returns the list when the source has said that it is complete at rv.
func (l *listing) whole(rv uint64) (*store.List, error) {
	if rv == 0 {
		return nil, source.ErrNoVersion
	}
	return &store.List{Tree: l.tree, RV: rv}, nil
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
		l.held, l.shown = f.store.Current(), f.store.LatestRV()
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
		whole, err := l.whole(ev.ResourceVersion)
		if err != nil {
			return false, err
		}
		f.last = whole.RV
		f.health.live() // first: callers that wait for the list look at once
		return true, f.complete(l, whole)
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

// listPages lists in pages of one version. If that version expires meanwhile, or a page has another
// one, it lists everything at once.
func (f *Reflector) listPages(ctx context.Context, l *listing) (*store.List, error) {
	visit := func(raw []byte) error {
		o, err := f.item(l, raw)
		if err == nil {
			l.tree.Load(o)
		}
		return err
	}
	opts, rv := source.ListOptions{Limit: DefaultPageSize}, uint64(0)
	for {
		meta, err := f.Source.List(ctx, f.Resource, f.Encoding, opts, visit)
		first := opts.Continue == ""
		switch {
		case err != nil && !first && source.IsExpired(err), err == nil && !first && meta.ResourceVersion != rv:
			l.tree = store.NewTree()
			opts = source.ListOptions{}
			continue
		case err != nil:
			return nil, f.wrapListError(ctx, err)
		case meta.Continue == "":
			return l.whole(meta.ResourceVersion)
		case opts.Limit == 0:
			return nil, f.wrapListError(ctx, errPaged)
		}
		opts, rv = source.ListOptions{Limit: DefaultPageSize, Continue: meta.Continue}, meta.ResourceVersion
	}
}

// errPaged says that the upstream sent a page although the whole list was requested.
var errPaged = errors.New("the upstream returned a page of a list requested without a limit")

func (f *Reflector) wrapListError(ctx context.Context, err error) error {
	var decode *DecodeError
	if ctx.Err() != nil || errors.As(err, &decode) {
		return err
	}
	return fmt.Errorf("listing: %w", err)
}

// complete makes the list the state of the store. The first one makes the store.
func (f *Reflector) complete(l *listing, list *store.List) error {
	l.complete = true
	f.broken, f.brokeAt = 0, time.Time{}
	f.listedAt.Store(&l.began)
	f.provisional = !f.Resource.Changed.IsZero() && l.began.Sub(f.Resource.Changed) < source.RedefinitionTime
	if f.provisional {
		f.uncertain.Store(true) // before anybody reads the list
	}
	if f.store == nil {
		f.health.listed(l.began)
		f.store = f.First(list)
		f.publish()
		return nil
	}
	if list.RV < l.shown {
		return fmt.Errorf("%w: from %d to %d", store.ErrRewound, l.shown, list.RV)
	}
	if err := f.store.Replace(list.Tree, list.RV); err != nil {
		return err
	}
	f.relist = false
	f.offer.withdraw() // it would make the list as old as the loaded state
	f.health.listed(l.began)
	f.publish()
	return nil
}
