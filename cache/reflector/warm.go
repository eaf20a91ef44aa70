package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
)

// A reflector begins with the collection's checkpoint, if there is one. The loaded state is not
// served until it is confirmed:
//
//  1. The cluster must be the same, and its version must not be below the loaded one.
//  2. A short watch from the loaded version brings the changes since, and a bookmark.
//  3. When the store has reached the version that the source had before the watch, it holds every
//     write up to then.
//  4. An object of the past is compared with the source, see history.go.
//
// Failures on the way are handled as usual: an expired version leads to a list, whose difference is
// applied. Only a failure that would stop a collection discards the loaded state, and the reflector
// begins without.

// catchUpSeconds is the timeout of the first watch after loading. kube-apiserver sends a bookmark
// two seconds before a watch ends, so the store is known to be current after a second, instead of
// up to a minute later. On a slow link the changes may take longer. Each next watch is then twice
// as long, up to maxCatchUpSeconds, until one is silent for catchUpSeconds. A watch that brings
// nothing is abandoned, later each time, because its first event may be large.
const (
	catchUpSeconds    = 3
	maxCatchUpSeconds = 60
)

// errContinued means that a watch of a loaded state ran its full time, and will be continued by
// another.
var errContinued = fmt.Errorf("%w before the list was complete", errEnded)

// sawEverything reports whether a watch that was opened at that time and ended cleanly has brought
// everything: it lasted as long as requested and was silent for its last second. A watch that ended
// early, as at the shutdown of a kube-apiserver, need not have brought anything. One that was still
// bringing events may have been cut in the middle of more. The tolerance is for clocks that run at
// different rates.
func (l *loadedState) sawEverything(opened time.Time) bool {
	return l.ranOut(opened) && time.Since(l.brought) >= settling
}

func (l *loadedState) ranOut(opened time.Time) bool {
	return time.Since(opened) >= time.Duration(l.seconds)*time.Second-50*time.Millisecond
}

// load makes the store of the checkpoint, if there is one.
func (f *Reflector) load(ctx context.Context) {
	if f.Checkpoint == nil {
		return
	}
	select {
	case f.Listing <- struct{}{}:
		defer func() { <-f.Listing }()
	case <-ctx.Done():
		return
	}
	f.fromCheckpoint.Store(true) // before it is read, so that doubt in between is not lost
	l := f.Checkpoint.Load(ctx, f.Panics, f.Decode)
	if l == nil {
		f.fromCheckpoint.Store(false)
		return
	}
	// From now on, age is measured by the monotonic clock.
	l.Note.At = time.Now().Add(-max(0, time.Since(l.Note.At)))
	f.kind.Store(&source.ListMeta{Kind: l.Note.Kind, APIVersion: l.Note.APIVersion, Warnings: l.Note.Warnings})
	f.server.Store(&l.Note.Server)
	f.heldFrom.Store(&l.Note.Server)
	f.uncertain.Store(true)
	f.store = f.First(l.List)
	f.loaded = &loadedState{checkpoint: l}
	f.Checkpoint.SetHeld(f.store.Current(), l)
	f.Log.Info("collection loaded from its checkpoint, unconfirmed", "objects", l.Note.Objects, "bytes", l.Note.Bytes,
		"resourceVersion", l.Note.ResourceVersion, "saved", l.Note.At)
}

// checkLoaded checks whether the loaded state is of the same cluster.
func (f *Reflector) checkLoaded(ctx context.Context) error {
	err := f.Checkpoint.CheckCluster(ctx, f.loaded.checkpoint)
	switch {
	case f.published.Load() && apierrors.IsForbidden(err):
		return err // the server may just be starting, see rejectedForLong
	case errors.Is(err, checkpoint.ErrUnknownCluster):
		return fmt.Errorf("possibly %w: %w", store.ErrRewound, err)
	}
	return err
}

// caughtUp confirms the loaded state once the watch has brought it up to date.
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

// publish makes the store readable, and confirmed. Its state was true at that time, or later.
func (f *Reflector) publish(at time.Time) {
	f.withdraw() // the offer would make it as old as the loaded state
	f.health.listed(at)
	if f.loaded != nil {
		f.Checkpoint.SetConfirmed()
		f.loaded = nil
		f.unconfirmed.Store(nil)
	}
	f.setConfirmed()
	f.heldFrom.Store(f.server.Load())
	f.uncertain.Store(f.provisional)
	f.show()
}

func (f *Reflector) show() {
	if f.published.CompareAndSwap(false, true) {
		f.Ready(f.fromCheckpoint.Load())
	}
}

// publishUnconfirmed makes the loaded state readable, with its age, while the source does not
// respond, if the options allow it.
func (f *Reflector) publishUnconfirmed() {
	if down, _, _ := f.Outage.state(); down && f.loaded != nil && f.Checkpoint.ServesUnconfirmed() {
		f.withdraw()
		f.showUnconfirmed(f.loaded.checkpoint.Note.At)
	}
}

func (f *Reflector) showUnconfirmed(at time.Time) {
	if !f.published.Load() {
		f.Checkpoint.LogUnconfirmed()
	}
	f.unconfirmed.Store(&at)
	f.health.listed(at)
	f.show()
}

// confirmTimeout is how long readers wait for the source to confirm the loaded state, if they may
// read it unconfirmed.
const confirmTimeout = time.Second

// offerLoaded publishes the loaded state, with its age, if it is not confirmed within
// confirmTimeout and the options allow it: the goroutine of Run may be waiting for a source that
// responds slowly. When withdraw has returned, nothing is published any more.
func (f *Reflector) offerLoaded() {
	if f.loaded == nil || !f.Checkpoint.ServesUnconfirmed() {
		return
	}
	at, done := f.loaded.checkpoint.Note.At, make(chan struct{})
	offer := time.AfterFunc(confirmTimeout, func() {
		defer close(done)
		f.showUnconfirmed(at)
	})
	f.withdraw = sync.OnceFunc(func() {
		if !offer.Stop() {
			<-done
		}
	})
}

// unload discards the loaded state for a reason that would stop a collection. It returns false if
// the collection has to stop.
func (f *Reflector) unload(reason error) bool {
	f.withdraw()
	if f.loaded == nil || f.published.Load() {
		return false
	}
	f.Checkpoint.Drop(reason)
	f.store.Close(reason)
	f.store, f.loaded, f.relist, f.provisional = nil, nil, false, false
	f.server.Store(new(string))
	f.heldFrom.Store(new(string))
	f.uncertain.Store(false)
	f.fromCheckpoint.Store(false)
	f.kind.Store(nil)
	return true
}

// confirm publishes the loaded state after the watch has brought it up to date.
func (f *Reflector) confirm(ctx context.Context) error {
	if err := f.checkHistory(ctx, f.loaded.checkpoint.Note.ResourceVersion); err != nil {
		return err
	}
	f.publish(f.loaded.requested)
	return nil
}

// Note returns the present state of s, which f fills, and what to save about it. ok is false if the
// state may be wrong, so that it must not be saved. It is safe for concurrent use.
func (f *Reflector) Note(s *store.Store) (_ *store.Snapshot, _ checkpoint.Note, ok bool) {
	// The server is read first: a list that completes meanwhile must not be attributed to the old
	// state. The other way round, a new state with the old server is merely listed once more.
	server := *f.heldFrom.Load()
	if f.uncertain.Load() {
		return nil, checkpoint.Note{}, false
	}
	complete := s.ResumeRV() // before the state, which then has at least the changes up to it
	v, kind := s.Current(), f.kind.Load()
	note := checkpoint.Note{
		ResourceVersion: v.RV(), CompleteRV: complete, At: time.Now(), Objects: v.Len(), Bytes: v.Bytes(),
		Server: server, Kind: kind.Kind, APIVersion: kind.APIVersion, Warnings: kind.Warnings,
	}
	if state := f.State(); state.Phase == Stale {
		note.At = state.Since
	}
	return v, note, !f.uncertain.Load() // it may have changed meanwhile
}
