package freshness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/object"
)

// Versions are the keys and versions of the objects of a list. Once complete, they are immutable
// and may be shared.
type Versions struct {
	Meta  source.ListMeta
	Items []Version
	// Newest is the highest version in Items.
	Newest uint64
	// IsPartial says that the list has more objects.
	IsPartial bool
	// IsOvertaken says that Items is empty because the store has passed the list's version anyway.
	IsOvertaken bool
}

// Version is the key and the version of one object.
type Version struct {
	Key string
	RV  uint64
}

// referrer lists versions on behalf of one collection.
type referrer struct {
	names   *source.VersionReader // nil for a ImmediateSource, which is not asked
	flights flight.Group[source.VersionOptions, *Versions]
}

// MaxUnseen is how many more objects than the collection a list may have. A collection that is so
// far behind proves nothing, and the bound keeps the cache from collecting a list in vain.
const MaxUnseen = 1000

// ErrTooFarBehind says that a list has more than MaxUnseen objects that the collection does not have.
var ErrTooFarBehind = errors.New("the cache is too far behind the upstream")

// Versions lists what the source has now. Concurrent callers share a list that began after all of
// them had called. The error wraps ErrUnsupported if the source has no such list. The caller's part
// of the request is added to asked.
func (c *Checker) Versions(ctx context.Context, opts source.VersionOptions, asked *Cost) (*Versions, error) {
	if c.referrer.lacks() {
		return nil, source.ErrUnsupported
	}
	refs, by, err := c.referrer.flights.Do(ctx, opts, func(ctx context.Context) (*Versions, error) {
		if opts.Continue == "" && c.isBusy() {
			if rv, ok := c.overtaken(ctx); ok {
				return &Versions{Meta: source.ListMeta{ResourceVersion: rv}, IsOvertaken: true}, nil
			}
		}
		return c.listReferences(ctx, opts)
	})
	asked.Requests += by.Part()
	if err == nil {
		asked.Bytes += by.Part() * float64(refs.Meta.Bytes)
	}
	return refs, err
}

// lacks reports whether the source cannot be asked.
func (r *referrer) lacks() bool { return r.names == nil || !r.names.IsSupported() }

// busyEvents is how many events within as many times HeadStart make a resource busy, so that the
// next event is about to come.
const busyEvents = 3

// busyObjects is the number of objects above which their names cost the source noticeably more than
// its version does.
const busyObjects = 200

func (c *Checker) isBusy() bool {
	return c.Store.Latest().Len() >= busyObjects && c.Store.Mux().Recent(busyEvents, int64(busyEvents*HeadStart))
}

const (
	// trailingDelay is the delay from which on the watch does not bring in time what names promise.
	// trailingTime is how long nothing must have changed for nothing to be missing.
	trailingDelay = time.Second
	trailingTime  = 10 * time.Second
)

// Lags reports whether changes arrive, and late: readers would not wait long enough for what the
// source names now.
func (c *Checker) Lags() bool {
	return c.Source.Delay() >= trailingDelay && c.Store.Mux().Recent(1, int64(trailingTime))
}

// overtaken asks for the source's version alone and reports whether the watch passes it at once. On
// a busy resource it does, and names are not needed.
func (c *Checker) overtaken(ctx context.Context) (rv uint64, ok bool) {
	held := c.Store.LatestRV()
	rv, err := c.Source.CurrentVersion(ctx, c.Resource)
	return rv, err == nil && c.CheckNotRewound(held, rv) == nil && c.WaitFor(ctx, rv, HeadStart) == nil
}

func (c *Checker) listReferences(ctx context.Context, opts source.VersionOptions) (*Versions, error) {
	held, limit := c.Store.LatestRV(), c.Store.Latest().Len()+MaxUnseen
	refs := &Versions{Items: make([]Version, 0, min(c.Store.Latest().Count(opts.Namespace), pageCapacity(opts.Limit)))}
	var err error
	refs.Meta, err = c.referrer.names.List(ctx, opts, func(key string, rv uint64) error {
		return refs.Add(key, rv, limit)
	})
	switch {
	case err == nil && refs.Meta.ResourceVersion == 0:
		err = fmt.Errorf("%w: %w", source.ErrUnsupported, source.ErrNoVersion)
		fallthrough
	case err != nil:
		if errors.Is(err, source.ErrUnsupported) {
			c.referrer.names.SetUnsupported()
		}
		return nil, fmt.Errorf("asking for names and versions: %w", err)
	case opts.Continue == "":
		err = c.CheckNotRewound(held, refs.Meta.ResourceVersion)
	}
	return refs, err
}

// Add appends an object, or fails if there are limit objects already.
func (refs *Versions) Add(key string, rv uint64, limit int) error {
	if len(refs.Items) == limit {
		return ErrTooFarBehind
	}
	refs.Items = append(refs.Items, Version{key, rv})
	refs.Newest = max(refs.Newest, rv)
	return nil
}

// MatchSnapshot reports whether v holds exactly these objects.
func (refs *Versions) MatchSnapshot(v *store.Snapshot) bool {
	if v.Len() != len(refs.Items) {
		return false
	}
	i := 0
	v.Ascend("", "", func(o *object.Object) bool {
		if refs.Items[i].RV != o.RV || refs.Items[i].Key != o.Key {
			return false
		}
		i++
		return true
	})
	return i == len(refs.Items)
}

// pageCapacity returns the capacity for a page of limit objects; 0 is no limit.
func pageCapacity(limit int64) int {
	const most = 1 << 20
	if limit <= 0 {
		return most
	}
	return int(min(limit, most))
}

// MatchSelection reports whether sel has exactly these objects, in this order.
func (refs *Versions) MatchSelection(sel *store.Selection) bool {
	if sel.Len() != len(refs.Items) {
		return false
	}
	same := true
	sel.Each(func(i int, o *object.Object) bool {
		same = refs.Items[i].RV == o.RV && refs.Items[i].Key == o.Key
		return same
	})
	return same
}

// IsSorted reports whether the items are in key order.
func (refs *Versions) IsSorted() bool { return slices.IsSortedFunc(refs.Items, byReferenceKey) }

func byReferenceKey(a, b Version) int { return cmp.Compare(a.Key, b.Key) }

// Sort sorts the items by key.
func (refs *Versions) Sort() { slices.SortFunc(refs.Items, byReferenceKey) }
