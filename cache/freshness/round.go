package freshness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// freshRound is one round of Fresh.
//
// Invariant: when it returns, the store holds every write that the source acknowledged before the
// round began. All callers called before that.
//
//  1. V, the source's current version, is read linearizably after the round began. Every such write
//     has a version of at most V.
//  2. A store at V or above holds all writes of its resource up to V. Done.
//  3. If the store stays below V, either the watch is a little late, or nothing of this resource
//     has changed and no bookmark has said so yet. On a resource that changes, the first is much
//     more likely, so the watch gets HeadStart.
//  4. To tell the two apart, the source lists the names and versions of its objects at L, which is
//     V or above. (Where that is cheap and the watch is not likely to pass V by itself, this
//     replaces step 1.) If the store holds exactly these objects, its state is the state at L, see
//     Store.Confirm, whatever was changed and reverted meanwhile. If it does not, the watch is
//     about to bring what is missing, and the round waits for it.
//  5. Where names are too expensive and watches are known to bring bookmarks, the round opens a
//     second watch at E, the store's version, instead. It brings, in order, every change above E
//     and then a bookmark B, so that there is no other change in (E, B]. Let L be the last change,
//     or E if there is none. The round waits until the store holds L, which the watch of the
//     reflector is about to bring as well. The store then holds all changes up to B and may call
//     itself B. If B is V or above, step 2 applies. A watch cache that was at V in step 1 has not
//     gone back since; another replica's may be behind, and the probe is repeated.
//
// The watch of the reflector may be broken meanwhile: if nothing has changed, neither proof needs
// it.
func (c *Checker) freshRound(ctx context.Context) (uint64, error) {
	var v uint64
	way, err := "listed", source.ErrUnsupported
	if c.store.Latest().Len() <= listedObjects && !c.isBusy() {
		// The watch is not likely to bring the version within HeadStart. Names come with the
		// version, so readers of an idle resource wait for one linearizable request.
		err = c.compare(ctx, 0)
	}
	if errors.Is(err, source.ErrUnsupported) {
		if v, way, err = c.requestVersion(ctx); store.IsTooLarge(err) {
			way, err = c.confirm(ctx, v)
		}
	}
	if err != nil && (v == 0 || c.store.LatestRV() < v) { // the watch may have passed v during a proof that failed
		c.rounds.WithLabelValues("failed").Inc()
		return 0, err
	}
	c.rounds.WithLabelValues(way).Inc()
	return c.store.LatestRV(), nil
}

// confirm determines whether the store holds everything up to version.
func (c *Checker) confirm(ctx context.Context, version uint64) (way string, err error) {
	if c.store.Latest().Len() <= listedObjects || !c.feed.SendsBookmarks() {
		if err := c.compare(ctx, version); !errors.Is(err, source.ErrUnsupported) {
			return "listed", err
		}
	}
	err = &store.TooLargeError{RV: version, Current: c.store.LatestRV()}
	for attempt := 0; attempt < probeAttempts && store.IsTooLarge(err); attempt++ {
		if err = c.Probe(ctx); err == nil {
			err = c.WaitFor(ctx, version, 0)
		}
	}
	return "probed", err
}

// compare is step 4 of freshRound.
func (c *Checker) compare(ctx context.Context, version uint64) error {
	if !c.listsVersions() {
		return source.ErrUnsupported
	}
	refs, err := c.listVersions(ctx, source.ListOptions{})
	switch {
	case err != nil:
		return err
	case refs.Meta.ResourceVersion < version:
		return &store.TooLargeError{RV: version, Current: refs.Meta.ResourceVersion}
	}
	deadline := time.Now().Add(catchUpLimit)
	for {
		v := c.store.Latest()
		switch {
		case v.RV() > refs.Meta.ResourceVersion, c.store.IsComplete(refs.Meta.ResourceVersion):
			return nil
		case refs.MatchSelection(&store.Selection{Snapshot: v, N: v.Len()}):
			c.store.Confirm(v, refs.Meta.ResourceVersion)
			return nil
		}
		// A missing change has at least the next version. It may have the snapshot's version while
		// more changes of that version may follow, and nobody is woken for those.
		next, wait := max(refs.Newest, v.RV()+1), time.Until(deadline)
		isPartial := !c.store.IsComplete(v.RV())
		if isPartial {
			wait = min(wait, HeadStart)
		}
		err := c.store.WaitFor(ctx, next, wait)
		if err != nil && !(isPartial && store.IsTooLarge(err) && time.Now().Before(deadline)) {
			return err
		}
	}
}

// errProbed ends a probe's watch.
var errProbed = errors.New("probe done")

// Probe is step 5 of freshRound.
func (c *Checker) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, (probeSeconds+2)*time.Second)
	defer cancel()
	last, shared := c.store.CompleteRV(), false
	var bookmark uint64
	opts := source.WatchOptions{ResourceVersion: last, TimeoutSeconds: probeSeconds, Probe: true}
	err := c.feed.Source.Watch(ctx, c.feed.Resource, c.feed.Encoding, opts, func(ev source.Event) error {
		switch ev.Type {
		case source.WatchAccepted:
			return nil
		case api.Bookmark:
			bookmark = ev.ResourceVersion
			return errProbed
		}
		o, err := c.feed.Decode(ev.Object)
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
		return errShared // the reflector may be between two of them
	}
	c.store.ConfirmUnchanged(bookmark)
	return nil
}

// errShared means that several changes have the last version that a probe saw. It is unknown whether
// all of them have arrived.
var errShared = errors.New("the last version contains several changes")

// Fresh returns a version that the store holds and that is at least as new as every write
// acknowledged by the source before the call. Concurrent callers share a round, but never one that
// began before they called. The error wraps ErrUnsupported if the source does not know its version.
// It is a *TooLargeError if the watch does not bring the version in time, or if a loaded state is
// not confirmed in time: versions alone do not tell that the source has the same past. The requests
// that the call made are added to cost.
func (c *Checker) Fresh(ctx context.Context, cost *Cost) (rv uint64, err error) {
	if err = c.FreshAtOnce(ctx); errors.Is(err, source.ErrUnsupported) {
		var by flight.Round
		rv, by, err = c.fresh.Do(ctx, struct{}{}, c.freshRound)
		cost.Requests += by.Part()
	} else {
		rv = c.store.LatestRV()
	}
	if err == nil && c.feed.IsUnconfirmed() {
		err = c.store.Wait(ctx, c.feed.WhenConfirmed(), confirmWait, rv)
	}
	return rv, err
}
