package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/object"
)

const (
	// saveTick is how often the saver looks for changes.
	saveTick = time.Second
	// saveEvery is how long a change waits for others. saveChurn is how many replaced bytes may be
	// held in memory meanwhile; with more, a change does not wait.
	saveEvery = 2 * time.Second
	saveChurn = 32 << 20
	// noteEvery is how long a new version without changes waits.
	noteEvery = time.Minute
	// retryAfter is the pause after a failed save. It doubles with each failure, up to
	// maxRetryAfter, because each attempt may fill the available space.
	retryAfter    = 30 * time.Second
	maxRetryAfter = 32 * retryAfter
	// A checkpoint is written from scratch when the changes written to it exceed its objects and
	// fewChanges.
	fewChanges = 1 << 20
)

// Start begins to save what changes in collections, until Finish or the end of ctx, and then once
// more.
func (k *Checkpointer) Start(ctx context.Context, panics *contain.Panics, collections func() []Collection) {
	ctx, k.stop = context.WithCancel(ctx)
	// The owner waits for it in Finish, but not forever.
	panics.Go(nil, "background", func() {
		defer close(k.done)
		ticker := time.NewTicker(saveTick)
		defer ticker.Stop()
		for ctx.Err() == nil {
			select {
			case <-ticker.C:
				k.saveAll(ctx, collections(), false)
			case <-ctx.Done():
			}
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.lastSave)
		defer cancel()
		k.saveAll(ctx, collections(), true)
	})
}

// Finish ends the saver after a last save. It returns false if the disk does not respond.
// Collections must still be running.
func (k *Checkpointer) Finish() bool {
	k.Storage.Hurry()
	k.stop()
	select {
	case <-k.done:
		return true
	case <-time.After(k.lastSave + k.diskTimeout):
		k.log.Warn("disk does not respond, changes not saved")
		return false
	}
}

func (k *Checkpointer) saveAll(ctx context.Context, collections []Collection, now bool) {
	for _, c := range collections {
		if ctx.Err() != nil {
			return
		}
		saving, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(c.Context, cancel)
		err := c.Checkpoint.save(saving, c, now)
		stop()
		cancel()
		if err != nil && c.Context.Err() == nil && (now || ctx.Err() == nil) {
			k.failed(c.Checkpoint.name, err)
		}
	}
}

// save saves the collection if that is due, or now.
func (i *Checkpoint) save(ctx context.Context, c Collection, now bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	waits := time.Now().Before(i.mu.retry)
	if i.mu.over || !i.mu.held || waits && (!now || i.mu.full) { // the last save is for those that have space
		return nil
	}
	if view := i.mu.holds; view != nil && !now && time.Since(i.mu.saved) < saveEvery && c.Store.Churn()-view.Churn() <= saveChurn {
		return nil // without taking a snapshot, which would make the reflector copy what it changes next
	}
	v, note, ok := c.Note(c.Store)
	if !ok || !i.dueLocked(v, &note, now) {
		return nil
	}
	began := time.Now()
	err := i.writeLocked(ctx, c, v, &note)
	i.mu.saved = time.Now()
	if err == nil {
		i.owner.seconds.Observe(time.Since(began).Seconds())
		i.owner.saves.WithLabelValues("saved").Inc()
		if i.owner.clearFailure(i.name) {
			i.owner.log.Info("checkpoints work again")
		}
		i.mu.wait, i.mu.full = 0, false
		return nil
	}
	i.closeLocked()
	i.mu.wait = min(max(2*i.mu.wait, retryAfter), maxRetryAfter)
	i.mu.holds, i.mu.retry = nil, i.mu.saved.Add(i.mu.wait)
	if i.mu.full = errors.Is(err, ErrFull); i.mu.full {
		i.removeLocked() // a checkpoint that cannot be kept up to date makes room for others
	}
	return err
}

func (i *Checkpoint) dueLocked(v *store.Snapshot, note *Note, now bool) bool {
	if i.mu.holds == nil || v.Content() != i.mu.holds.Content() {
		return true
	}
	if note.ResourceVersion != i.mu.note.ResourceVersion || note.CompleteRV != i.mu.note.CompleteRV || note.Server != i.mu.note.Server {
		return now || time.Since(i.mu.saved) >= noteEvery
	}
	return false
}

// writeLocked writes what has changed since the last time, or everything.
func (i *Checkpoint) writeLocked(ctx context.Context, c Collection, v *store.Snapshot, note *Note) error {
	note.Changed = i.mu.note.Changed
	if i.mu.writer == nil || i.mu.holds == nil || note.Changed > max(note.Bytes, fewChanges) {
		i.closeLocked()
		var err error
		if i.header.Cluster, err = i.owner.cluster(ctx); err != nil {
			return err
		}
		header, err := json.Marshal(i.header)
		if err != nil {
			return err
		}
		if i.mu.writer, err = i.owner.Storage.Create(ctx, i.name, header); err != nil {
			return err
		}
		i.mu.holds, note.Changed = nil, 0
	}
	changed, err := i.writeDifferenceLocked(ctx, c, v)
	if err != nil {
		return err
	}
	note.Changed += changed
	content, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := i.mu.writer.Commit(ctx, content); err != nil {
		return err
	}
	i.mu.holds, i.mu.note = v, *note
	return nil
}

// writeDifferenceLocked writes the difference between v and the checkpoint, and returns the size of
// the changes. If the history does not contain the changes, it compares all objects.
func (i *Checkpoint) writeDifferenceLocked(ctx context.Context, c Collection, v *store.Snapshot) (changed int64, err error) {
	held, w := i.mu.holds, i.mu.writer
	switch {
	case held == nil:
		return 0, v.Each(func(o *object.Object) error { return w.Set(ctx, o.Raw) })
	case held.Content() == v.Content():
		return 0, nil
	}
	write := func(was, is *object.Object) error {
		switch {
		case was == is:
			return nil
		case is == nil:
			changed += int64(len(was.Key))
			return w.Delete(ctx, was.Key)
		}
		changed += int64(len(is.Raw))
		return w.Set(ctx, is.Raw)
	}
	keys, ok := c.Store.ChangedSince(held.Mark(), v.Len())
	if !ok {
		err = v.ChangesSince(held, write)
		return changed, err
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if err := write(held.Get(key), v.Get(key)); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
