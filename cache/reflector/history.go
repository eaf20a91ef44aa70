package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
)

// A source that was restored from a backup continues to count from the backup's version. Once its
// version has passed the one that is held, the restore is visible neither in the version nor in the
// watch: the watch brings later changes as if nothing had happened, but not the loss of the writes
// after the backup, nor the writes that replaced them.
//
// Before a loaded state is served, the reflector therefore requests one object from the source at
// the version to which the watch has brought the store: the newest of those that have not changed
// since loading. If it was written after the backup, the source does not have it, or has another
// version of it. The response also contains the number of objects that follow. Before a broken
// watch is resumed, the same is requested for the newest object, because the source may have been
// restored meanwhile. This costs one small request per collection and outage.
//
// It does not find a restore without a trace in the collection: no object that still exists was
// written between the backup and the end of the last process (or of the watch), and none behind the
// newest one came or went. But all collections share one history. When one of them turns out to be
// of another past, all loaded ones are discarded, and all that were listed before its watch broke.
// The self-check finds the rest, beginning with loaded collections.

// errOtherHistory means that the state is of a past that the source does not have.
var errOtherHistory = fmt.Errorf("%w before it reached the cached version", store.ErrRewound)

// HeldBefore reports whether the state was listed before a watch broke at that time or, if broke is
// zero, was loaded. It is safe for concurrent use.
func (f *Reflector) HeldBefore(broke time.Time) bool {
	if listed := f.listedAt.Load(); listed != nil && !broke.IsZero() {
		return listed.Before(broke)
	}
	return f.fromCheckpoint.Load()
}

// checkHistory compares the newest object that has not changed since a version with the source's.
// The error wraps errOtherHistory if they differ. A source that does not support the request is
// trusted.
func (f *Reflector) checkHistory(ctx context.Context, since uint64) error {
	at := f.store.ResumeRV()
	v, err := f.store.AppliedAt(at, time.Now())
	if err != nil {
		return nil // changes of the last version may be missing, and the version before it is not held
	}
	held := v.NewestUpTo(since)
	if held == nil {
		return nil
	}
	ctx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	var key string
	var rv uint64
	token := v.PageToken(at, held.Key)
	meta, err := f.ListVersionsPage(ctx, source.ListOptions{Limit: 1, Continue: token.Encode()}, func(k string, v uint64) error {
		key, rv = k, v
		return nil
	})
	switch {
	case source.IsStatus(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err), errors.Is(err, source.ErrUnsupported):
		f.Log.Debug("cached objects not compared with the upstream's history", "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("reading a cached object: %w", err)
	case meta.ResourceVersion != at:
		return nil // the response is of another state
	case key != held.Key || rv != held.RV:
		return fmt.Errorf("%w: at %d the upstream has %s at %d, the cache has %s at %d", errOtherHistory, at, key, rv, held.Key, held.RV)
	}
	follow := v.CountFrom("", held.Key) - 1
	if n, known := meta.Remaining(); known && n != int64(follow) {
		return fmt.Errorf("%w: at %d the upstream has %d objects after %s, the cache has %d", errOtherHistory, at, n, held.Key, follow)
	}
	return nil
}
