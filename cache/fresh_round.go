package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
)

const (
	// feedHeadStart is how long a fresh read leaves it to the feed to bring the
	// version before it asks for a proof: on a resource that changes it nearly always
	// does.
	feedHeadStart = 20 * time.Millisecond
	// listedObjects is the size up to which a collection is proven by the names and
	// versions of its objects: those of 2,000 cost kube-apiserver some 20 ms of
	// processor time, of which a probe costs it nothing but takes a second.
	listedObjects = 2000
	// probeSeconds is the timeout of a probe's watch. kube-apiserver sends a
	// bookmark two seconds before a watch ends, so the answer comes after one.
	probeSeconds = 3
	// catchUpLimit is how long the feed may take to bring what a proof has seen.
	catchUpLimit = 3 * time.Second
	// probeAttempts bounds the probes of one call: one that was answered by a
	// server behind the version asked for proves nothing.
	probeAttempts = 3
)

// freshRound is one round of Fresh.
//
// What has to be shown: the collection holds every write that the upstream
// acknowledged before the round began. Its callers came before that.
//
//  1. V, the upstream's current version, is read linearizably after the round
//     began, so every such write has a version of at most V.
//  2. A collection at V or above holds all writes of its resource up to V. Done.
//  3. If it stays below V, either the feed is a little late, or nothing happened
//     to this resource since and no bookmark has told us so yet. The first is
//     much likelier on a resource that changes, so the feed gets a moment.
//  4. To tell them apart, the upstream is asked (at once, instead of step 1, where that
//     costs little and the feed is not likely to come past V by itself) which objects there are now, in which
//     versions: at L, which is V or more. When the collection holds just those, its
//     state is that at L (see store.hold), whatever happened and was undone meanwhile. When
//     it does not, the feed is about to bring what is missing, and is waited for.
//  5. Where names cost too much and watches are known to bring bookmarks, a second
//     watch is opened at E, the collection's version, instead. It brings, in order,
//     every change above E and then a bookmark B: there is no change other than those
//     in (E,B]. Let L be the last of them, E if there is none. The collection waits to
//     hold L, which the feed is about to bring just as it was brought here; then it
//     holds all changes up to B, may call itself B, and if B is V or more that shows 2.
//     As the upstream's watch cache was at V in step 1 it is now, and B is not below;
//     another replica's may be, and then the probe is repeated.
//
// The feed itself may be broken meanwhile: neither proof needs it when there was no
// change.
func (c *checker) freshRound(ctx context.Context) (uint64, error) {
	rv, way, err := c.catchUp(ctx)
	c.rounds.WithLabelValues(way).Inc()
	return rv, err
}

// catchUp does the round and tells which way it took.
func (c *checker) catchUp(ctx context.Context) (rv uint64, way string, err error) {
	if c.namesFirst() {
		// The names tell the version, too, and one linearizable request is what a reader
		// of a quiet resource waits for.
		if err := c.compare(ctx, 0); !errors.Is(err, source.ErrUnsupported) {
			if err != nil {
				return 0, "failed", err
			}
			return c.store.LatestRV(), "listed", nil
		}
	}
	held := c.store.LatestRV()
	v, err := c.source.CurrentVersion(ctx, c.resource)
	if err != nil {
		return 0, "failed", fmt.Errorf("asking for the current version: %w", err)
	}
	if err := c.expect(held, v); err != nil {
		return 0, "failed", err
	}
	if rv := c.store.LatestRV(); rv >= v {
		return rv, "held", nil
	}
	way, err = "fed", c.WaitFor(ctx, v, feedHeadStart)
	if store.IsTooLarge(err) {
		way, err = c.prove(ctx, v)
	}
	if err != nil && c.store.LatestRV() < v { // the feed may have come past it during a proof that failed
		return 0, "failed", err
	}
	return c.store.LatestRV(), way, nil
}

// namesFirst reports whether the names are asked for at once: they cost little, or the
// version alone, which the feed is left a moment to bring, is not likely to do.
func (c *checker) namesFirst() bool {
	return c.store.Latest().Len() <= listedObjects && !c.isBusy()
}

// prove finds out whether the collection holds everything up to version.
func (c *checker) prove(ctx context.Context, version uint64) (way string, err error) {
	if c.store.Latest().Len() <= listedObjects || !c.reflector.SendsBookmarks() {
		if err := c.compare(ctx, version); !errors.Is(err, source.ErrUnsupported) {
			return "listed", err
		}
	}
	err = &store.TooLargeError{RV: version, Current: c.store.LatestRV()}
	for attempt := 0; attempt < probeAttempts && store.IsTooLarge(err); attempt++ {
		if err = c.probe(ctx); err == nil {
			err = c.WaitFor(ctx, version, 0)
		}
	}
	return "probed", err
}

// compare is step 4 of freshRound.
func (c *checker) compare(ctx context.Context, version uint64) error {
	if c.referrer.lacks() {
		return source.ErrUnsupported
	}
	refs, err := c.listReferences(ctx, source.ReferenceOptions{})
	switch {
	case err != nil:
		return err
	case refs.meta.ResourceVersion < version:
		return &store.TooLargeError{RV: version, Current: refs.meta.ResourceVersion}
	}
	deadline := time.Now().Add(catchUpLimit)
	for {
		v := c.store.Latest()
		switch {
		case v.RV() > refs.meta.ResourceVersion, c.store.IsComplete(refs.meta.ResourceVersion):
			return nil
		case refs.name(v):
			c.store.Confirm(v, refs.meta.ResourceVersion)
			return nil
		}
		// What is missing has at least the next version; or that of the view, which
		// nobody is told of, while more changes of it may follow.
		next, wait := max(refs.newest, v.RV()+1), time.Until(deadline)
		torn := !c.store.IsComplete(v.RV())
		if torn {
			wait = min(wait, feedHeadStart)
		}
		err := c.store.WaitFor(ctx, next, wait)
		if err != nil && !(torn && store.IsTooLarge(err) && time.Now().Before(deadline)) {
			return err
		}
	}
}

// expect is an error if the upstream's most recent version is below what the collection
// held before it was asked for. The feed finds out what that means.
func (c *checker) expect(held, version uint64) error {
	if version >= held {
		return nil
	}
	c.reflector.Restart(store.ErrSuspect)
	return fmt.Errorf("%w: from %d to %d", store.ErrSuspect, held, version)
}

// FreshAtOnce is Fresh for a PromptSource, which needs no request and nobody to
// share it with. With any other source the error is ErrUnsupported.
func (c *checker) FreshAtOnce(ctx context.Context) (uint64, error) {
	if err := c.advance(ctx, catchUpLimit); err != nil {
		return 0, err
	}
	return c.store.LatestRV(), nil
}

// advance lets the collection hold the source's current version.
func (c *checker) advance(ctx context.Context, timeout time.Duration) error {
	if c.prompt == nil {
		return source.ErrUnsupported
	}
	last, current, shared, err := c.prompt.Progress(ctx, c.resource, c.encoding)
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
		return fmt.Errorf("asking for the current version: %w", err)
	}
	c.immediate.Inc()
	if c.store.LatestRV() < current { // there was no change between the two
		c.store.Progress(current)
	}
	return nil
}

// errProbed ends a probe's watch.
var errProbed = errors.New("probe done")

// probe is step 5 of freshRound.
func (c *checker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, (probeSeconds+2)*time.Second)
	defer cancel()
	last, shared := c.store.CompleteRV(), false
	var bookmark uint64
	opts := source.WatchOptions{ResourceVersion: last, TimeoutSeconds: probeSeconds, Probe: true}
	err := c.source.Watch(ctx, c.resource, c.encoding, opts, func(ev source.Event) error {
		switch ev.Type {
		case source.WatchAccepted:
			return nil
		case api.Bookmark:
			bookmark = ev.ResourceVersion
			return errProbed
		}
		o, err := c.reflector.Decode(ev.Object)
		if err == nil {
			last, shared = max(last, o.RV), o.RV == last
		}
		return err
	})
	switch {
	case bookmark == 0 && err != nil:
		return fmt.Errorf("probing for the current version: %w", err)
	case bookmark == 0:
		return fmt.Errorf("probing for the current version: %w", source.ErrNoBookmark)
	}
	if err := c.WaitFor(ctx, last, catchUpLimit); err != nil {
		return err
	}
	if shared && !c.store.IsComplete(last) {
		return errShared // the feed may be between two of them
	}
	c.store.ConfirmUnchanged(bookmark)
	return nil
}

// errShared: what a proof has seen last are several changes of one version, and of such
// a version nobody knows whether all of it has come.
var errShared = errors.New("the last version has several changes")
