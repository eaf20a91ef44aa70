package reflector

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
)

// watch reads one stream to its end, see stream. l, if not nil, collects the initial events.
func (f *Reflector) watch(ctx context.Context, opts source.WatchOptions, l *listing) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.health.opened(l == nil, max(opts.ResourceVersion, f.target), f.targetDelayed, cancel)
	initial := time.AfterFunc(initialSilence, func() { cancel(errNoInitialEnd) })
	defer initial.Stop()
	silence := time.AfterFunc(silenceLimit, func() { cancel(errSilent) })
	defer silence.Stop()
	silence.Stop() // until the source is known to send bookmarks
	if l == nil {
		initial.Stop()
	}

	f.last = opts.ResourceVersion
	var failed error // the source may wrap or replace it
	err := f.Source.Watch(ctx, f.Resource, f.Encoding, opts, func(ev source.Event) error {
		if ev.Type == source.WatchAccepted {
			f.Outage.recordResponse()
		}
		if l != nil {
			initial.Reset(initialSilence)
			var done bool
			if done, failed = f.initial(l, ev); done {
				l.release()
				l = nil
				initial.Stop()
			}
			return failed
		}
		if ev.Type == api.Bookmark {
			f.progress.Store(true)
		}
		if f.progress.Load() {
			silence.Reset(silenceLimit)
		}
		failed = f.live(ev)
		f.health.contact(f.last, ev.Type != source.WatchAccepted)
		if f.loaded != nil && failed == nil {
			failed = f.caughtUp(ctx)
		}
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return errEnded
}

// live handles an event after the initial ones. A bookmark may be below the store's version, as a
// probe may have proved a higher one, but not below what came before it on the same watch.
func (f *Reflector) live(ev source.Event) error {
	switch ev.Type {
	case source.WatchAccepted:
		return nil
	case api.Bookmark:
		if ev.ResourceVersion < f.last {
			return store.ErrSuspect
		}
		f.last = ev.ResourceVersion
		f.keepBookmark(ev)
		f.store.Progress(ev.ResourceVersion)
		return nil
	}
	o, err := f.Decode(ev.Object)
	if err != nil {
		return err
	}
	f.Events.WithLabelValues(ev.Type.String()).Inc()
	f.last = max(f.last, o.RV)
	if err := f.store.Apply(ev.Type, o); err != nil {
		return fmt.Errorf("%s %s at %d: %w", ev.Type, o.Key, o.RV, err)
	}
	return nil
}
