package cache

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

// references are the objects of a list by name and version. They are immutable and
// shared by all who asked for them.
type references struct {
	meta  source.ListMeta
	items []reference
	// newest is the highest version among items.
	newest uint64
	// cut: there are more of them.
	cut bool
	// unnamed: there are no items; the collection has come to the version anyway.
	unnamed bool
}

type reference struct {
	key string
	rv  uint64
}

// referrer asks a ReferenceSource on behalf of one collection.
type referrer struct {
	names   *source.Names // nil for a PromptSource, which is not asked
	flights flight.Group[source.ReferenceOptions, *references]
}

// maxUnseen is by how many objects a list of references may exceed what the
// collection holds: one that is so far behind proves nothing, and the bound keeps a
// list from being collected for nothing.
const maxUnseen = 1000

var errUnseen = errors.New("the cache is too far behind the upstream")

// references lists what the upstream has now. Callers share a list that began after
// all of them had come. The error wraps ErrUnsupported when there is no such list. What of
// it is the caller's is counted.
func (c *checker) references(ctx context.Context, opts source.ReferenceOptions, asked *Asked) (*references, error) {
	if c.referrer.lacks() {
		return nil, source.ErrUnsupported
	}
	refs, by, err := c.referrer.flights.Do(ctx, opts, func(ctx context.Context) (*references, error) {
		if opts.Continue == "" && c.isBusy() {
			if rv, ok := c.overtaken(ctx); ok {
				return &references{meta: source.ListMeta{ResourceVersion: rv}, unnamed: true}, nil
			}
		}
		return c.listReferences(ctx, opts)
	})
	asked.Requests += by.Part()
	if err == nil {
		asked.Bytes += by.Part() * float64(refs.meta.Bytes)
	}
	return refs, err
}

// lacks reports whether there is nobody to ask.
func (r *referrer) lacks() bool { return r.names == nil || !r.names.IsSupported() }

// A resource is busy when so many events came within busyEvents times feedHeadStart: the
// next one is about to come.
const busyEvents = 3

// busyObjects is the number of objects above which their names cost the upstream
// noticeably more than its version.
const busyObjects = 200

func (c *checker) isBusy() bool {
	return c.store.Latest().Len() >= busyObjects && c.store.Mux().Recent(busyEvents, int64(busyEvents*feedHeadStart))
}

const (
	// trailingDelay is from which delay on a feed does not bring what is named in time, and
	// trailingTime for how long nothing must have come that nothing is to be expected.
	trailingDelay = time.Second
	trailingTime  = 10 * time.Second
)

// trails reports whether the feed brings changes, and late: what the upstream names now
// comes when nobody waits for it any more.
func (c *checker) trails() bool {
	return c.source.Delay() >= trailingDelay && c.store.Mux().Recent(1, int64(trailingTime))
}

// overtaken asks for the upstream's version alone and tells whether the feed comes past
// it at once. On a busy resource it does, and the names are not needed.
func (c *checker) overtaken(ctx context.Context) (rv uint64, ok bool) {
	held := c.store.LatestRV()
	rv, err := c.source.CurrentVersion(ctx, c.resource)
	return rv, err == nil && c.expect(held, rv) == nil && c.WaitFor(ctx, rv, feedHeadStart) == nil
}

func (c *checker) listReferences(ctx context.Context, opts source.ReferenceOptions) (*references, error) {
	held, limit := c.store.LatestRV(), c.store.Latest().Len()+maxUnseen
	refs := &references{items: make([]reference, 0, min(c.store.Latest().Count(opts.Namespace), pageCapacity(opts.Limit)))}
	var err error
	refs.meta, err = c.referrer.names.List(ctx, opts, func(key string, rv uint64) error {
		if len(refs.items) == limit {
			return errUnseen
		}
		refs.items = append(refs.items, reference{key, rv})
		refs.newest = max(refs.newest, rv)
		return nil
	})
	switch {
	case err == nil && refs.meta.ResourceVersion == 0:
		err = fmt.Errorf("%w: %w", source.ErrUnsupported, source.ErrNoVersion)
		fallthrough
	case err != nil:
		if errors.Is(err, source.ErrUnsupported) {
			c.referrer.names.SetUnsupported()
		}
		return nil, fmt.Errorf("asking for names and versions: %w", err)
	case opts.Continue == "":
		err = c.expect(held, refs.meta.ResourceVersion)
	}
	return refs, err
}

// name reports whether refs name just the objects of v.
func (refs *references) name(v *store.View) bool {
	if v.Len() != len(refs.items) {
		return false
	}
	i := 0
	v.Ascend("", "", func(o *object.Object) bool {
		if refs.items[i].rv != o.RV || refs.items[i].key != o.Key {
			return false
		}
		i++
		return true
	})
	return i == len(refs.items)
}

// pageCapacity is the room for a page of limit objects, 0 being no limit.
func pageCapacity(limit int64) int {
	const most = 1 << 20
	if limit <= 0 {
		return most
	}
	return int(min(limit, most))
}

// match reports whether sel has just the objects of refs, in their order.
func (refs *references) match(sel *store.Selection) bool {
	if sel.Len() != len(refs.items) {
		return false
	}
	same := true
	sel.Each(func(i int, o *object.Object) bool {
		same = refs.items[i].rv == o.RV && refs.items[i].key == o.Key
		return same
	})
	return same
}

// sorted reports whether the items are in the order of their keys.
func (refs *references) sorted() bool { return slices.IsSortedFunc(refs.items, byReferenceKey) }

func byReferenceKey(a, b reference) int { return cmp.Compare(a.key, b.key) }

// sort sorts the items by their keys.
func (refs *references) sort() { slices.SortFunc(refs.items, byReferenceKey) }
