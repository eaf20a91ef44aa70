package freshness

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
)

// Versions lists what the source has now. Concurrent callers share a list that began after all of
// them had called. The error wraps ErrUnsupported if the source has no such list. The caller's part
// of the request is added to cost.
func (c *Checker) Versions(ctx context.Context, opts source.ListOptions, cost *Cost) (*Versions, error) {
	if !c.listsVersions() {
		return nil, source.ErrUnsupported
	}
	refs, by, err := c.lists.Do(ctx, opts, func(ctx context.Context) (*Versions, error) {
		if opts.Continue == "" && c.isBusy() {
			// If the watch passes the version at once, as it does on a busy resource, names are not
			// needed.
			if rv, _, err := c.ask(ctx); err == nil {
				return &Versions{Meta: source.ListMeta{ResourceVersion: rv}, IsOvertaken: true}, nil
			}
		}
		return c.listVersions(ctx, opts)
	})
	cost.Requests += by.Part()
	if err == nil {
		cost.Bytes += by.Part() * float64(refs.Meta.Bytes)
	}
	return refs, err
}

// busyEvents is how many events within as many times HeadStart make a resource busy, so that the
// next event is about to come.
const busyEvents = 3

// busyObjects is the number of objects above which their names cost the source noticeably more than
// its version does.
const busyObjects = 200

func (c *Checker) isBusy() bool {
	return c.store.Latest().Len() >= busyObjects && c.store.Mux().Recent(busyEvents, int64(busyEvents*HeadStart))
}

const (
	// lagDelay is the delay from which on the watch does not bring in time what names promise.
	// lagTime is how long nothing must have changed for nothing to be missing.
	lagDelay = time.Second
	lagTime  = 10 * time.Second
)

// Lags reports whether changes arrive, and late: readers would not wait long enough for what the
// source names now.
func (c *Checker) Lags() bool {
	return c.feed.Source.Delay() >= lagDelay && c.store.Mux().Recent(1, int64(lagTime))
}

func (c *Checker) listVersions(ctx context.Context, opts source.ListOptions) (*Versions, error) {
	held, limit := c.store.LatestRV(), c.store.Latest().Len()+MaxUnseen
	capacity := c.store.Latest().CountFrom(opts.Namespace, "")
	if opts.Limit > 0 {
		capacity = int(min(int64(capacity), opts.Limit))
	}
	refs := &Versions{Items: make([]Version, 0, capacity)}
	var err error
	refs.Meta, err = c.feed.ListVersions(ctx, opts, func(key string, rv uint64) error {
		return refs.Add(key, rv, limit)
	})
	switch {
	case err == nil && refs.Meta.ResourceVersion == 0:
		c.feed.NoVersions.Store(true)
		err = fmt.Errorf("%w: %w", source.ErrUnsupported, source.ErrNoVersion)
		fallthrough
	case err != nil:
		return nil, fmt.Errorf("listing versions: %w", err)
	case opts.Continue == "":
		err = c.CheckNotRewound(held, refs.Meta.ResourceVersion)
	}
	return refs, err
}

// CanRevalidate reports whether Versions is supported, as far as is known, and useful, that is,
// whether the watch is not too slow.
func (c *Checker) CanRevalidate() bool { return c.listsVersions() && !c.Lags() }
