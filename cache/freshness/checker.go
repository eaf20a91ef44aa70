package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Checker determines whether a store is as new as its source, and advances the store where that can
// be proved. It is safe for concurrent use.
type Checker struct {
	feed            *reflector.Reflector
	store           *store.Store           // which feed fills
	rounds          *prometheus.CounterVec // by how the round ended
	immediate       source.ImmediateSource // nil if the source is not one
	immediateRounds prometheus.Counter     // of rounds; only with an ImmediateSource
	fresh           flight.Group[struct{}, uint64]
	lists           flight.Group[source.ListOptions, *Versions]
}

// New returns a Checker of the store that f fills. It counts its rounds by how they ended.
func New(f *reflector.Reflector, s *store.Store, rounds *prometheus.CounterVec) *Checker {
	c := &Checker{feed: f, store: s, rounds: rounds}
	if c.immediate, _ = f.Source.(source.ImmediateSource); c.immediate != nil {
		c.immediateRounds = rounds.WithLabelValues("immediate")
	}
	return c
}

// listsVersions reports whether the source, as far as is known, has lists of versions. An
// ImmediateSource needs none.
func (c *Checker) listsVersions() bool { return c.immediate == nil && c.feed.ListsVersions() }

// Cost counts the requests to the source and the bytes of their responses. If several callers
// share a request, each is charged a part of it.
type Cost struct{ Requests, Bytes float64 }

// WaitFor returns when the store holds rv. The errors are those of Store.WaitFor.
func (c *Checker) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if c.store.LatestRV() >= rv {
		return nil
	}
	if c.immediate != nil && timeout > 0 {
		// Perhaps nothing of this resource is missing.
		_ = c.advance(ctx, timeout)
	}
	return c.store.WaitFor(ctx, rv, timeout)
}

const (
	// HeadStart is how long a round waits for the watch to bring the version before it looks for a
	// proof. On a resource that changes, the watch nearly always brings it.
	HeadStart = 20 * time.Millisecond
	// listedObjects is the collection size up to which names and versions are the proof. Those of
	// 2,000 objects cost kube-apiserver about 20 ms of CPU time. A probe costs it nothing, but
	// takes a second.
	listedObjects = 2000
	// probeSeconds is the timeout of a probe's watch. kube-apiserver sends a bookmark two seconds
	// before a watch ends, so the result arrives after one.
	probeSeconds = 3
	// catchUpLimit is how long the watch may take to bring what a proof has seen.
	catchUpLimit = 3 * time.Second
	// confirmWait is how long readers of the most recent state wait for a loaded state to be
	// confirmed.
	confirmWait = 3 * time.Second
	// probeAttempts bounds the probes of one call. A probe proves nothing if the server that
	// responded is behind the requested version.
	probeAttempts = 3
)

// requestVersion reads the source's current version, and gives the watch HeadStart to bring it. The error is a
// *TooLargeError if it does not; v is 0 after any other error.
func (c *Checker) requestVersion(ctx context.Context) (v uint64, way string, err error) {
	held := c.store.LatestRV()
	if v, err = c.feed.Source.CurrentVersion(ctx, c.feed.Resource); err != nil {
		return 0, "", fmt.Errorf("reading the current version: %w", err)
	}
	if err := c.CheckNotRewound(held, v); err != nil {
		return 0, "", err
	}
	if c.store.LatestRV() >= v {
		return v, "held", nil
	}
	return v, "fed", c.WaitFor(ctx, v, HeadStart)
}

// CheckNotRewound returns an error if the source's current version is below held, the version that
// the store held before the request to the source. The reflector then examines the source.
func (c *Checker) CheckNotRewound(held, version uint64) error {
	if version >= held {
		return nil
	}
	c.feed.Restart(store.ErrSuspect)
	return fmt.Errorf("%w: from %d to %d", store.ErrSuspect, held, version)
}

// FreshAtOnce is Fresh for an ImmediateSource, which needs no request and therefore shares none.
// With any other source the error is ErrUnsupported.
func (c *Checker) FreshAtOnce(ctx context.Context) error { return c.advance(ctx, catchUpLimit) }

// advance brings the store to the source's current version.
func (c *Checker) advance(ctx context.Context, timeout time.Duration) error {
	if c.immediate == nil {
		return source.ErrUnsupported
	}
	last, current, shared, err := c.immediate.Progress(ctx, c.feed.Resource, c.feed.Encoding)
	switch {
	case err == nil && shared:
		err = c.store.WaitForComplete(ctx, last, timeout)
	case err == nil:
		err = c.store.WaitFor(ctx, last, timeout)
	}
	switch {
	case errors.Is(err, source.ErrUnsupported):
		return err
	case err != nil:
		c.rounds.WithLabelValues("failed").Inc()
		return fmt.Errorf("reading the current version: %w", err)
	}
	c.immediateRounds.Inc()
	if c.store.LatestRV() < current { // nothing has changed between the two
		c.store.Progress(current)
	}
	return nil
}

// Versions are the keys and versions of the objects of a list. Once complete, they are immutable
// and may be shared.
type Versions struct {
	Meta  source.ListMeta
	Items []Version
	// Newest is the highest version in Items.
	Newest uint64
	// IsPartial is true if the list has more objects.
	IsPartial bool
	// IsOvertaken is true if Items is empty because the store has passed the list's version anyway.
	IsOvertaken bool
}

// Version is the key and the version of one object.
type Version struct {
	Key string
	RV  uint64
}

// MaxUnseen is how many more objects than the collection a list may have. A collection that is so
// far behind proves nothing, and the bound keeps the cache from collecting a list in vain.
const MaxUnseen = 1000

// ErrTooFarBehind means that a list has more than MaxUnseen objects that the collection does not
// have.
var ErrTooFarBehind = errors.New("the cache is too far behind the upstream")

// Add appends an object, or fails if there are limit objects already.
func (refs *Versions) Add(key string, rv uint64, limit int) error {
	if len(refs.Items) == limit {
		return ErrTooFarBehind
	}
	refs.Items = append(refs.Items, Version{key, rv})
	refs.Newest = max(refs.Newest, rv)
	return nil
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
			if rv, _, err := c.requestVersion(ctx); err == nil {
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
