package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
)

// maxBroken is how many streaming lists in a row may break. A server that is too busy to finish one
// may still finish pages.
const maxBroken = 2

// list lists, and watches from there.
func (f *Reflector) list(ctx context.Context) error {
	server := f.Outage.Known(ctx)
	f.server.Store(&server)
	if err := f.learnColumns(ctx); err != nil {
		return err
	}
	l, err := f.startList(ctx)
	if err != nil {
		return err
	}
	defer l.release()
	streams := !f.paged && f.broken < maxBroken
	if src, ok := f.Source.(source.CompressedSource); ok && src.Compressed() {
		rv, err := f.listCompressed(ctx, l, streams)
		if !errors.Is(err, errQuick) {
			return f.listed(ctx, l, rv, err)
		}
		l.tree = store.NewTree()
	}
	if streams {
		err := f.watch(ctx, source.WatchOptions{SendInitialEvents: true}, l)
		if l.complete {
			return err
		}
		if !errors.Is(err, source.ErrUnsupported) && !apierrors.IsInvalid(err) {
			if l.begun {
				f.broken++
			}
			return err
		}
		f.Log.Debug("streaming list not supported, listing in pages", "error", err)
		f.paged = true
		l.tree = store.NewTree()
	}
	rv, err := f.listPages(ctx, l)
	return f.listed(ctx, l, rv, err)
}

// listed completes a paged list, unless it failed with err, and watches from there.
func (f *Reflector) listed(ctx context.Context, l *listing, rv uint64, err error) error {
	if err != nil {
		return err
	}
	if err := f.complete(l, rv); err != nil {
		return err
	}
	l.release() // the watch may last for hours
	return f.watch(ctx, source.WatchOptions{ResourceVersion: rv}, nil)
}

// learnKind requests the kind of the lists and the warnings of the resource once.
func (f *Reflector) learnKind(ctx context.Context) error {
	if f.kind.Load() != nil {
		return nil
	}
	meta, err := f.listOne(ctx)
	if err != nil {
		return fmt.Errorf("reading the list's kind: %w", err)
	}
	f.kind.Store(&source.ListMeta{Kind: meta.Kind, APIVersion: meta.APIVersion, Warnings: meta.Warnings})
	return nil
}

// learnColumns requests the columns of Tables from a server of another release than the printer's.
// Tables are made from JSON.
func (f *Reflector) learnColumns(ctx context.Context) error {
	printer, ok := f.Resource.Printer.(*table.Following)
	if !ok || f.Encoding != api.JSON {
		return nil
	}
	src, ok := f.Source.(source.ColumnSource)
	if !ok || !printer.Follows(f.ListedBy()) {
		printer.Follow(nil)
		return nil
	}
	ctx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	columns, err := src.Columns(ctx, f.Resource)
	if err != nil {
		return fmt.Errorf("reading the columns of Tables: %w", err)
	}
	printer.Follow(columns)
	if printer.Traits().NoTables {
		f.Log.Info("Table columns differ in the upstream's release, forwarding Tables")
	}
	return nil
}

// checkRewound requests the source's version, which must not be below the store's. The store's is
// read first, because the source's can only have grown since.
func (f *Reflector) checkRewound(ctx context.Context) (current uint64, err error) {
	held, requested := f.store.LatestRV(), time.Now()
	versionCtx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	current, err = f.Source.CurrentVersion(versionCtx, f.Resource)
	if errors.Is(err, source.ErrUnsupported) {
		var meta source.ListMeta
		meta, err = f.listOne(ctx)
		current = meta.ResourceVersion
	}
	if err != nil {
		return 0, fmt.Errorf("reading the current version: %w", err)
	}
	if src, ok := f.Source.(source.ReplicatedSource); ok && current < held {
		// The server that responded may lag behind others of the same store.
		newest, err := src.NewestVersion(versionCtx, f.Resource)
		if newest >= held || err != nil && !errors.Is(err, source.ErrUnsupported) {
			return 0, fmt.Errorf("%w: it is at %d, the cache at %d", errBehind, current, held)
		}
	}
	if current < held {
		return 0, fmt.Errorf("%w: from %d to %d", store.ErrRewound, held, current)
	}
	f.target, f.targetDelayed = current, time.Since(requested) >= settling
	return current, nil
}

// resume watches from the version that is held, if the source is not below it.
func (f *Reflector) resume(ctx context.Context) error {
	requested := time.Now()
	current, err := f.checkRewound(ctx)
	if err != nil {
		return err
	}
	// After an upgrade of the upstream the same version of an object may read differently.
	if now, listed := f.Outage.Query(ctx), f.ListedBy(); now != "" && listed != "" && now != listed {
		f.relist = true
		return f.list(ctx)
	}
	opts := source.WatchOptions{ResourceVersion: f.store.ResumeRV()}
	if f.loaded == nil {
		if !f.brokeAt.IsZero() && !f.Resource.Aggregated {
			if err := f.checkHistory(ctx, opts.ResourceVersion); err != nil {
				return err
			}
			f.brokeAt = time.Time{}
		}
		return f.watch(ctx, opts, nil)
	}
	if err := f.learnColumns(ctx); err != nil {
		return err
	}
	l := f.loaded
	l.current, l.requested = current, requested
	l.seconds = min(max(2*l.seconds, catchUpSeconds), maxCatchUpSeconds)
	opts.TimeoutSeconds = l.seconds
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened, from := time.Now(), f.store.AppliedRV()
	l.timeout = max(l.timeout, maxCatchUpSeconds*time.Second)
	l.quiet = time.AfterFunc(l.timeout, func() { cancel(errContinued) })
	defer l.quiet.Stop()
	err = f.watch(ctx, opts, nil)
	switch {
	case errors.Is(err, errContinued) && f.loaded != nil:
		if l.seconds = 0; f.store.AppliedRV() == from {
			l.timeout *= 2
		}
	case f.loaded == nil || !errors.Is(err, errEnded):
	case l.sawEverything(opened): // the source has sent everything it had
		if failed := f.confirm(ctx); failed != nil {
			return failed
		}
	case l.ranOut(opened):
		f.backoff.reset()
		err = errContinued
	}
	return err
}
