package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A feed begins with what was kept of its collection, if anything was. It is not true until
// shown: the store made of it is nobody's but the feed's. The cluster has to be the same and
// its version not below; then a short watch from the version kept brings what has changed,
// and a bookmark. When the store has come to the version that the source had before that,
// it holds every write up to then, and is published, unless it is of another past than the
// source (see feed_past.go).
//
// What goes wrong on the way goes the usual way: an expired version is a list of which the
// difference is taken. Only what would end a collection ends what was loaded alone, and the
// feed begins with nothing.

// loadedState is what is to be shown of a loaded store.
type loadedState struct {
	image *checkpoint.Loaded
	note  checkpoint.Note // of image
	// current is the source's version before the watch was opened, which was asked for at
	// that time; 0 before.
	current uint64
	asked   time.Time
	// seconds is the timeout of the last watch, and brought when it brought something last.
	// quiet ends it when that is a while ago: patience, when it has brought nothing.
	seconds  int64
	brought  time.Time
	quiet    *time.Timer
	patience time.Duration
}

// catchUpSeconds is the timeout of the first watch after loading. kube-apiserver sends a
// bookmark two seconds before a watch ends, so the store is known to be current in a second,
// and not with the next bookmark, within a minute. Over a slow link there is more to bring
// than fits, and each next one is twice as long, up to maxCatchUpSeconds, until one is silent
// for as long as the first takes, which is tried again. One that brings nothing is given up
// in the end, later each time: what it brings may be large.
const (
	catchUpSeconds    = 3
	maxCatchUpSeconds = 60
)

// errPart: a watch of what was loaded went on to its end, and so will the next one.
var errPart = fmt.Errorf("%w before it had brought everything", errEnded)

// wholeWatch reports whether a watch that was opened at that time and ended cleanly has
// brought what there was: it has lasted as long as was asked for, and was silent for the last
// second of that. One that was ended before its time, as those of a kube-apiserver are that
// is being shut down, need not have brought anything; one that brought something to the end
// may have been ended in the middle, as a link carries less than there is. The slack is for
// clocks that go at other rates.
func (l *loadedState) wholeWatch(opened time.Time) bool {
	return l.ranOut(opened) && time.Since(l.brought) >= settling
}

func (l *loadedState) ranOut(opened time.Time) bool {
	return time.Since(opened) >= time.Duration(l.seconds)*time.Second-50*time.Millisecond
}

// load makes the store of the image, if there is one.
func (f *Reflector) load(ctx context.Context) {
	if f.image == nil {
		return
	}
	select {
	case f.Listing <- struct{}{}:
		defer func() { <-f.Listing }()
	case <-ctx.Done():
		return
	}
	f.kept.Store(true) // before it is read, so that doubt of it does not come in between
	l := f.image.Load(ctx, f.Panics, f.Decode)
	if l == nil {
		f.kept.Store(false)
		return
	}
	// By the clock that goes on whatever is made of the other one.
	l.Note.At = time.Now().Add(-max(0, time.Since(l.Note.At)))
	f.kind.Store(&source.ListMeta{Kind: l.Note.Kind, APIVersion: l.Note.APIVersion, Warnings: l.Note.Warnings})
	f.server.Store(&l.Note.Server)
	f.holds.Store(&l.Note.Server)
	f.unsure.Store(true)
	f.store = f.First(l.List)
	f.loaded = &loadedState{image: l, note: l.Note}
	f.image.SetHeld(f.store.Moment(), l)
	f.Log.Info("collection loaded, not confirmed yet", "objects", l.Note.Objects, "bytes", l.Note.Bytes,
		"resourceVersion", l.Note.ResourceVersion, "saved", l.Note.At)
}

// checkLoaded asks whether the cluster is that of what was loaded.
func (f *Reflector) checkLoaded(ctx context.Context) error {
	err := f.image.CheckCluster(ctx, f.loaded.image)
	switch {
	case f.published.Load() && apierrors.IsForbidden(err):
		return err // it may just be starting, see refusedForLong
	case errors.Is(err, checkpoint.ErrUnknownCluster):
		return fmt.Errorf("%w, perhaps: %w", store.ErrRewound, err)
	}
	return err
}

// resume watches from the version held, if the source is not below that.
func (f *Reflector) resume(ctx context.Context) error {
	asked := time.Now()
	current, err := f.checkRewound(ctx)
	if err != nil {
		return err
	}
	if f.otherServer(ctx) {
		f.relist = true
		return f.list(ctx)
	}
	opts := source.WatchOptions{ResourceVersion: f.store.ResumeRV()}
	if f.loaded == nil {
		if err := f.checkBroken(ctx); err != nil {
			return err
		}
		return f.watch(ctx, opts, nil)
	}
	if err := f.learnColumns(ctx); err != nil {
		return err
	}
	l := f.loaded
	l.current, l.asked = current, asked
	l.seconds = min(max(2*l.seconds, catchUpSeconds), maxCatchUpSeconds)
	opts.TimeoutSeconds = l.seconds
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened, from := time.Now(), f.store.AppliedRV()
	l.patience = max(l.patience, maxCatchUpSeconds*time.Second)
	l.quiet = time.AfterFunc(l.patience, func() { cancel(errPart) })
	defer l.quiet.Stop()
	err = f.watch(ctx, opts, nil)
	switch {
	case errors.Is(err, errPart) && f.loaded != nil:
		if l.seconds = 0; f.store.AppliedRV() == from {
			l.patience *= 2
		}
	case f.loaded == nil || !errors.Is(err, errEnded):
	case l.wholeWatch(opened): // the source has sent what it had
		if failed := f.confirm(ctx); failed != nil {
			return failed
		}
	case l.ranOut(opened):
		f.backoff.reset()
		err = errPart
	}
	return err
}

// caughtUp confirms what was loaded when the watch has brought it up to date.
func (f *Reflector) caughtUp(ctx context.Context) error {
	l := f.loaded
	l.brought = time.Now()
	if l.seconds > catchUpSeconds {
		l.quiet.Reset(catchUpSeconds * time.Second)
	}
	if l.current == 0 || f.store.AppliedRV() < l.current {
		return nil
	}
	l.quiet.Stop()
	return f.confirm(ctx)
}

// publish says that the store is true.
func (f *Reflector) publish() {
	f.offer.withdraw()
	if f.loaded != nil {
		f.image.SetConfirmed()
		f.loaded = nil
		f.unconfirmed.Store(nil)
	}
	if !f.isConfirmed {
		f.isConfirmed = true
		close(f.confirmed)
	}
	f.holds.Store(f.server.Load())
	f.unsure.Store(f.provisional)
	f.show()
}

func (f *Reflector) show() {
	if f.published.CompareAndSwap(false, true) {
		f.Ready()
	}
}

// publishUnconfirmed shows what was loaded, as old as it is, while the source does not
// answer, where that is wanted.
func (f *Reflector) publishUnconfirmed() {
	if f.loaded == nil || !f.image.ServesUnconfirmed() || !f.Outage.isDown() {
		return
	}
	f.offer.withdraw()
	f.showUnconfirmed(f.loaded.note.At)
}

func (f *Reflector) showUnconfirmed(at time.Time) {
	if !f.published.Load() {
		f.image.TellUnconfirmed()
	}
	f.unconfirmed.Store(&at)
	f.health.listed(at)
	f.show()
}

// offer is the showing of what was loaded after a while. It is a timer's, for the feed's
// goroutine waits for the source meanwhile, which may answer, but slowly.
type offer struct {
	mu    sync.Mutex
	timer *time.Timer // nil when there is nothing to show
}

// confirmPatience is how long readers wait for the source to confirm what was loaded, where
// they may have it as it is.
const confirmPatience = time.Second

// offerLoaded lets what was loaded be shown, as old as it is, when nothing is known of it for
// a while, where that is wanted. It returns what ends that.
func (f *Reflector) offerLoaded() (withdraw func()) {
	if f.loaded == nil || !f.image.ServesUnconfirmed() {
		return func() {}
	}
	at, o := f.loaded.note.At, &f.offer
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = time.AfterFunc(confirmPatience, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.timer != nil {
			f.showUnconfirmed(at)
		}
	})
	return o.withdraw
}

// withdraw returns when nothing is shown any more by the timer.
func (o *offer) withdraw() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

// unload gives up what was loaded, for a reason that would end a collection, and reports
// whether that is all that has to end.
func (f *Reflector) unload(reason error) bool {
	f.offer.withdraw()
	if f.loaded == nil || f.published.Load() {
		return false
	}
	f.image.Drop(reason)
	f.store.Close(store.CloseReason(reason))
	f.store, f.loaded, f.relist, f.provisional = nil, nil, false, false
	f.server.Store(nil)
	f.holds.Store(nil)
	f.unsure.Store(false)
	f.kept.Store(false)
	f.kind.Store(nil)
	return true
}
