package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A source that was restored from a backup counts on from the backup's version. When its
// version has passed the one kept before that is noticed, neither the version tells it nor
// the watch, which brings what came later as if nothing had happened: of what was written
// after the backup and is lost, and of what was written instead, nobody speaks.
//
// So before what was loaded is shown, the source is asked for one object of it, as it is at
// the version that the watch has brought the store to: the newest of those that have not
// changed since. If it is from after the backup, the source has it not, or in another
// version. The answer also tells how many objects follow. The same is asked, of the newest
// object and at the version held, before a watch that broke is resumed: the source may have
// been restored meanwhile. That is one small request for each collection and outage.
//
// What this does not find is a restore of which the collection shows nothing: nothing of it
// that is still there was written between the backup and the end of the last process, or of
// the watch, and no object behind that one came or went. But all collections have one history:
// when one of them is found to be of another past, all that were loaded are given up, and all
// that were listed before its watch broke. What is left is found by the self-check, which
// begins with what was loaded.

// errPast says that what is held is of a past that the source does not have.
var errPast = fmt.Errorf("%w before it has passed what is held", store.ErrRewound)

// checkBroken is checkPast of a store whose watch broke since the last list or check.
func (f *Reflector) checkBroken(ctx context.Context) error {
	if f.broke.IsZero() || f.Resource.Aggregated {
		return nil
	}
	err := f.checkPast(ctx, f.store.ResumeRV())
	if err == nil {
		f.broke = time.Time{}
	}
	return err
}

// HeldBefore reports whether what f holds, if anything, is of before a watch broke, or, if that is
// zero, was loaded. It may be called by any goroutine.
func (f *Reflector) HeldBefore(broke time.Time) bool {
	if listed := f.listedAt.Load(); listed != nil && !broke.IsZero() {
		return listed.Before(broke)
	}
	return f.kept.Load()
}

// checkPast compares one object of the store, which has not changed since a version, with the
// source's. The error is errPast, wrapped, when they differ. A source that cannot be asked so is
// believed.
func (f *Reflector) checkPast(ctx context.Context, since uint64) error {
	at := f.store.ResumeRV()
	v, err := f.store.AppliedAt(at, time.Now())
	if err != nil {
		return nil // some of the last version may be missing, and the one before is not held
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
	meta, err := f.Names.Page(ctx, 1, token.Encode(), func(k string, v uint64) error {
		key, rv = k, v
		return nil
	})
	switch {
	case source.IsStatus(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err), errors.Is(err, source.ErrUnsupported):
		f.Log.Debug("what is held cannot be compared with the upstream's past", "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("asking for an object that is held: %w", err)
	case meta.ResourceVersion != at:
		return nil // it answers with another state than it was asked for
	case key != held.Key || rv != held.RV:
		return fmt.Errorf("%w: at %d it has %s at %d, held is %s at %d", errPast, at, key, rv, held.Key, held.RV)
	}
	follow := v.CountFrom("", held.Key) - 1
	if n, told := meta.Following(); told && n != int64(follow) {
		return fmt.Errorf("%w: at %d it has %d objects behind %s, held are %d", errPast, at, n, held.Key, follow)
	}
	return nil
}

// confirm publishes what was loaded, and brought up to date by the watch.
func (f *Reflector) confirm(ctx context.Context) error {
	if err := f.checkPast(ctx, f.loaded.note.ResourceVersion); err != nil {
		return err
	}
	f.offer.withdraw()
	f.health.listed(f.loaded.asked) // it was true then, or later
	f.publish()
	return nil
}
