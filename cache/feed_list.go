package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// listing is a list on its way in.
type listing struct {
	held  *View // what a relist is compared with, nil the first time
	tree  *objectTree
	began time.Time
	// complete is set when the store has taken the list over.
	complete bool
	// release gives the slot for lists back; it may be called again.
	release func()
}

// startList waits for a slot: each list costs the source and the network much,
// and after an outage every feed may want one.
func (f *feed) startList(ctx context.Context) (*listing, error) {
	select {
	case f.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l := &listing{tree: newTree(byKey), began: time.Now(), release: sync.OnceFunc(func() { <-f.listing })}
	if f.synced {
		l.held = f.store.current()
	}
	return l, nil
}

// item decodes an object of the list. One that is held already, byte for byte,
// is kept as it is: with it what was derived from it, and a relist of an
// unchanged state takes no memory.
func (f *feed) item(l *listing, raw []byte) (*object.Object, error) {
	o, err := f.decode(raw)
	if err != nil || l.held == nil {
		return o, err
	}
	if held, ok := l.held.tree.Get(o); ok && held.RV == o.RV && bytes.Equal(held.Raw, o.Raw) {
		return held, nil
	}
	return o, nil
}

// initial takes an event of a watch before the end of its initial events: those
// are ADDED, and what happened since the server began to send them may follow
// before the bookmark. done: the list is complete.
func (f *feed) initial(l *listing, ev Event) (done bool, err error) {
	if ev.Type == WatchAccepted {
		return false, nil
	}
	if ev.Type == api.Bookmark {
		f.keepBookmark(ev)
		if !ev.InitialEventsEnd {
			return false, nil
		}
		f.last = ev.ResourceVersion
		f.health.live() // first, for those who have waited for the list look at once
		return true, f.complete(l, ev.ResourceVersion)
	}
	o, err := f.item(l, ev.Object)
	if err != nil {
		return false, err
	}
	if ev.Type == api.Deleted {
		l.tree.Delete(o)
	} else {
		l.tree.Load(o) // fast for rising keys, any order works
	}
	return false, nil
}

// listPages reads a list in pages of one version and returns that. When the
// version expires in the middle, the whole is read at once.
func (f *feed) listPages(ctx context.Context, l *listing) (uint64, error) {
	visit := func(raw []byte) error {
		o, err := f.item(l, raw)
		if err == nil {
			l.tree.Load(o)
		}
		return err
	}
	opts := ListOptions{Limit: pageSize}
	for {
		meta, err := f.source.List(ctx, f.resource, f.encoding, opts, visit)
		switch {
		case err != nil && opts.Continue != "" && isExpired(err):
			l.tree = newTree(byKey)
			opts = ListOptions{}
			continue
		case err != nil:
			return 0, f.wrapListError(ctx, err)
		case meta.Continue == "":
			return meta.ResourceVersion, nil
		}
		opts = ListOptions{Limit: pageSize, Continue: meta.Continue}
	}
}

func (f *feed) wrapListError(ctx context.Context, err error) error {
	var decode *decodeError
	if ctx.Err() != nil || errors.As(err, &decode) {
		return err
	}
	return fmt.Errorf("listing: %w", err)
}

// complete makes the listed state, at rv, that of the store.
func (f *feed) complete(l *listing, rv uint64) error {
	l.complete = true
	if f.synced {
		if err := f.store.replace(l.tree, rv); err != nil {
			return err
		}
		f.relist = false
		f.health.listed(l.began)
		return nil
	}
	f.store.install(l.tree, rv)
	f.synced, f.relist = true, false
	f.health.listed(l.began)
	f.ready()
	return nil
}
