package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

const (
	// watchSeconds is the timeout of a watch. kube-apiserver sends a bookmark two seconds before
	// the end (bookmarkBeforeEnd in k8s.io/apiserver/pkg/storage/cacher), and none if it took longer
	// to begin the watch. So watches without a bookmark are repeated with slowWatchSeconds.
	watchSeconds, slowWatchSeconds = 3, 5
	// attempts is how often the events are read if the history moves meanwhile, or a watch breaks.
	attempts = 3
	// pause is the time between two watches.
	pause = 200 * time.Millisecond
)

// Ends of a watch.
var (
	errComplete = errors.New("all events were read")
	errBehind   = errors.New("the bookmark is below the history")
)

// extend reads all events above from, up to the beginning of the history, and prepends them.
func (b *Backfiller) extend(ctx context.Context, from uint64) error {
	mux, err := b.Store.Mux(), error(watchmux.ErrMoved)
	for attempt := 0; attempt < attempts && errors.Is(err, watchmux.ErrMoved); attempt++ {
		to := mux.Oldest()
		switch n, _ := mux.Room(); {
		case to <= from:
			return nil
		case n == 0:
			return watchmux.ErrNoRoom
		case !mux.CanPrepend():
			return errGap
		}
		var events []*watchmux.Event
		if events, err = b.read(ctx, from, to); err != nil {
			return err
		}
		if err = b.Store.Prepend(from, to, events); err == nil {
			b.Events.WithLabelValues().Add(float64(len(events)))
			b.Feed.Log.Debug("history extended", "from", from, "to", to, "events", len(events))
		}
	}
	return err
}

// reading collects the events up to the version to. It is complete when a later event or bookmark
// arrives. kube-apiserver sends no bookmark at the version of the last event, so there are two more
// cases:
//
//  1. The last event is at to, and not a deletion. Only deletions share a version: kube-apiserver
//     writes one object per transaction of etcd, but an expiring lease deletes several. (Another write
//     at to would be missing in Store.Prepend.)
//  2. The last event is at to, and the server ends the watch cleanly a second or more later. The
//     deletions of one version follow each other at once.
type reading struct {
	*Backfiller
	to     uint64
	events []*watchmux.Event
	// newest is the version of the last event or bookmark, complete the version up to which no event
	// is missing: several changes can have one version.
	newest, complete uint64
	newestAt         time.Time // of the last event
	bookmarked       bool
	room             int // events
	bytes            int64
}

// read returns all events above from, up to the version to.
func (b *Backfiller) read(ctx context.Context, from, to uint64) ([]*watchmux.Event, error) {
	r := &reading{Backfiller: b, to: to, newest: from, complete: from}
	r.room, r.bytes = b.Store.Mux().Room()
	var err error
	seconds := int64(watchSeconds)
	for broken := 0; broken < attempts; {
		began := time.Now()
		var failed error // the source may wrap or replace it
		opts := source.WatchOptions{ResourceVersion: r.complete, TimeoutSeconds: seconds, Probe: true}
		err = b.Feed.Source.Watch(ctx, b.Feed.Resource, b.Feed.Encoding, opts, func(ev source.Event) error {
			failed = r.handle(ev)
			return failed
		})
		switch {
		case errors.Is(failed, errComplete):
			return r.events, link(r.events)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case failed != nil && !errors.Is(failed, errBehind):
			return nil, failed
		case failed == nil && source.IsStatus(err):
			return nil, err
		case failed == nil && err == nil && r.newest == to && time.Since(r.newestAt) >= time.Second:
			return r.events, link(r.events)
		case failed == nil && err == nil && !r.bookmarked && time.Since(began) > time.Duration(seconds-1)*time.Second:
			if seconds == slowWatchSeconds {
				return nil, source.ErrNoBookmark
			}
			seconds = slowWatchSeconds
		case failed == nil:
			broken++
		}
		r.rewind()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.Join(errBroken, err)
}

// handle adds an event. The error is errComplete once everything up to r.to was read.
func (r *reading) handle(ev source.Event) error {
	switch ev.Type {
	case source.WatchAccepted:
		return nil
	case api.Bookmark:
		r.bookmarked = true
		r.newest, r.complete = max(r.newest, ev.ResourceVersion), max(r.complete, ev.ResourceVersion)
		if r.complete >= r.to {
			return errComplete
		}
		return errBehind // another watch has a bookmark sooner
	}
	o, err := r.Feed.Decode(ev.Object)
	switch {
	case err != nil:
		return err
	case o.RV > r.to:
		return errComplete
	case o.RV <= r.complete, o.RV < r.newest:
		return fmt.Errorf("%w: %s at %d after %d", store.ErrNotJoined, o.Key, o.RV, r.newest)
	case o.RV > r.newest:
		r.newest, r.complete = o.RV, r.newest
	}
	r.room--
	r.bytes -= int64(len(o.Raw))
	if r.room < 0 || r.bytes < 0 {
		return watchmux.ErrNoRoom
	}
	r.events = append(r.events, &watchmux.Event{Type: ev.Type, RV: o.RV, Object: o})
	if r.newestAt = time.Now(); o.RV == r.to && ev.Type != api.Deleted {
		return errComplete
	}
	return nil
}

// rewind drops the events of a version of which some may be missing. The next watch begins there.
func (r *reading) rewind() {
	for n := len(r.events); n > 0 && r.events[n-1].RV > r.complete; n-- {
		r.room++
		r.bytes += int64(len(r.events[n-1].Object.Raw))
		r.events = r.events[:n-1]
	}
	r.newest = r.complete
}

// link sets the previous states of the events, as far as they are known.
func link(events []*watchmux.Event) error {
	last := make(map[string]*watchmux.Event)
	for _, e := range events {
		before := last[e.Object.Key]
		exists := before != nil && before.Type != api.Deleted
		switch {
		case exists && e.Type == api.Added, !exists && before != nil && e.Type != api.Added:
			return fmt.Errorf("%w: %s event of %s at %d after %s", store.ErrNotJoined, e.Type, e.Object.Key, e.RV, before.Type)
		case exists:
			e.Prev = before.Object
		case e.Type != api.Added:
			e.PrevUnknown = true
		}
		last[e.Object.Key] = e
	}
	return nil
}
