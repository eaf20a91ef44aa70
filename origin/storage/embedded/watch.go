package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Limits of a batch: a watcher that is behind gets several.
const (
	batchEvents = 256
	batchBytes  = 1 << 20 // and one event
	// batchScan is the maximum number of changes to scan before checking for the end.
	batchScan = 10000
)

// A watcher is a cursor without a buffer. While no change concerns it, next is 0 and its
// position is the engine's. The first change that concerns it sets next and wakes it; Next
// reads the log from there on.
type watcher struct {
	engine *Engine
	prefix string
	after  uint64        // no event of this or an older revision is wanted
	wake   chan struct{} // has room for one
	ended  chan struct{} // closed by Close

	// Guarded by engine.mu:
	next      uint64 // the first revision that may concern it and is not delivered, 0: none
	requested uint64 // the revision of which progress was requested, 0: none
	closed    bool

	// Used by Next alone:
	events   []storage.Event
	previous []storage.KeyValue // of events
	err      error              // final
}

// watchers are the open ones. There are about as many as kinds of resource, so a change looks at
// all.
type watchers map[*watcher]struct{}

// publish wakes the watchers that changes concern, and those that began ahead of the engine and
// owe a report of progress. rev is the newest revision.
func (ws watchers) publish(changes []changed, rev uint64) {
	for w := range ws {
		if w.next == 0 && w.after < rev {
			i := slices.IndexFunc(changes, func(c changed) bool { return c.revision > w.after && strings.HasPrefix(c.key, w.prefix) })
			if i >= 0 {
				w.next = changes[i].revision
				signal(w.wake)
			}
		}
		if w.requested != 0 && w.after <= rev {
			signal(w.wake)
		}
	}
}

// Watch implements storage.Engine. ctx bounds the opening alone.
func (e *Engine) Watch(ctx context.Context, opts storage.WatchOptions) (storage.Watcher, error) {
	if err := e.closed(ctx); err != nil {
		return nil, err
	}
	w := &watcher{
		engine: e, prefix: strings.Clone(opts.Prefix), after: max(opts.After, firstRevision),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.after < e.mu.revision {
		w.next = w.after + 1
	}
	e.mu.watchers[w] = struct{}{}
	return w, nil
}

// RequestProgress implements storage.Watcher.
func (w *watcher) RequestProgress() {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w.requested = e.mu.revision
	signal(w.wake)
}

// Close implements storage.Watcher.
func (w *watcher) Close() {
	e := w.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.ended)
		delete(e.mu.watchers, w)
	}
}

// Next implements storage.Watcher.
func (w *watcher) Next(ctx context.Context) (storage.Batch, error) {
	if w.err != nil {
		return storage.Batch{}, w.err
	}
	for {
		if err := w.over(ctx); err != nil {
			return storage.Batch{}, w.end(err)
		}
		rev, err := w.collect()
		if err != nil {
			return storage.Batch{}, w.end(err)
		}
		if rev != 0 {
			return storage.Batch{Events: w.events, Revision: rev}, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		case <-w.ended:
		case <-w.engine.closing:
		}
	}
}

func (w *watcher) over(ctx context.Context) error {
	select {
	case <-w.ended:
		return storage.ErrClosed
	case <-w.engine.closing:
		return storage.ErrClosed
	default:
		return ctx.Err()
	}
}

// end makes an error final and closes the watcher.
func (w *watcher) end(err error) error {
	w.err = err
	w.Close()
	return err
}

// collect sets events to the next ones and returns the revision up to which they are
// complete, 0 if there is nothing to deliver yet.
func (w *watcher) collect() (uint64, error) {
	w.reset()
	e := w.engine
	for {
		e.mu.Lock()
		switch {
		case w.next == 0:
			rev := w.progress()
			e.mu.Unlock()
			return rev, nil
		case w.next < e.mu.compacted:
			e.mu.Unlock()
			return 0, storage.ErrCompacted
		}
		from, to := w.next, e.mu.revision
		e.mu.Unlock()
		rev, err := w.fromLog(from, to)
		if err != nil || len(w.events) > 0 {
			return rev, err
		}
		if err := w.over(context.Background()); err != nil {
			return 0, err
		}
	}
}

func (w *watcher) reset() {
	clear(w.events)
	clear(w.previous)
	w.events, w.previous = w.events[:0], w.previous[:0]
}

// progress returns the revision to report if progress was requested and everything up to it is
// delivered, otherwise 0. A watcher that began ahead of the engine reports nothing before.
func (w *watcher) progress() uint64 {
	e := w.engine
	if w.requested == 0 || e.mu.revision < w.after {
		return 0
	}
	w.requested = 0
	return e.mu.revision
}

// advance records that everything up to rev is delivered. engine.mu is held.
func (w *watcher) advance(rev uint64) {
	w.next = 0
	if rev < w.engine.mu.revision {
		w.next = rev + 1
	}
	if w.requested != 0 && w.requested <= rev && len(w.events) > 0 {
		w.requested = 0
	}
}

// readPrevious reads what the keys of the events held before, now that previous does not move
// any more.
func (w *watcher) readPrevious() error {
	for i := range w.previous {
		kv := &w.previous[i]
		if kv.Revision == 0 {
			continue
		}
		before, err := w.engine.at(kv.Key, kv.Revision)
		if err != nil {
			return err
		}
		*kv = *before
		w.events[i].Previous = kv
	}
	return nil
}

// fromLog takes events of the revisions in [from, to] from the log.
func (w *watcher) fromLog(from, to uint64) (uint64, error) {
	e := w.engine
	release, err := e.use()
	if err != nil {
		return 0, err
	}
	rev, err := w.readLog(from, to)
	release()
	if err == nil {
		err = w.readPrevious()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if from < e.mu.compacted { // some of it may have been missing
		return 0, storage.ErrCompacted
	}
	if err != nil {
		return 0, e.readError(err)
	}
	w.advance(rev)
	return rev, nil
}

// readLog reads events of [from, to] and returns the last revision that it read.
func (w *watcher) readLog(from, to uint64) (uint64, error) {
	iter, err := w.engine.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from), UpperBound: logKey(min(to, math.MaxUint64-1) + 1)})
	if err != nil {
		return 0, err
	}
	rev, size, scanned := from-1, 0, 0
	for ok := iter.First(); ok && err == nil; ok = iter.Next() {
		if len(w.events) >= batchEvents || size >= batchBytes || scanned >= batchScan {
			return rev, errors.Join(iter.Error(), iter.Close())
		}
		var n int
		n, err = w.readEntry(iter, rev+1)
		size += n
		scanned++
		rev++
	}
	if err == nil && iter.Error() == nil && rev != to {
		err = corrupt("a gap in the log", logKey(rev+1))
	}
	return rev, errors.Join(err, iter.Error(), iter.Close())
}

// readEntry adds the change that iter is at, if it concerns the watcher.
func (w *watcher) readEntry(iter *pebble.Iterator, want uint64) (int, error) {
	rev, err := number(iter.Key())
	if err != nil {
		return 0, err
	}
	if rev != want {
		return 0, corrupt("a gap in the log", iter.Key())
	}
	v, err := iter.ValueAndErr()
	if err != nil {
		return 0, err
	}
	ent, err := parseEntry(v)
	if err != nil {
		return 0, fmt.Errorf("revision %d: %w", rev, err)
	}
	if len(ent.key) < len(w.prefix) || string(ent.key[:len(w.prefix)]) != w.prefix {
		return 0, nil
	}
	kv := storage.KeyValue{Key: string(ent.key), Revision: rev}
	if ent.kind != storage.Deleted {
		kv.Value = append([]byte{}, ent.value...)
	}
	w.events = append(w.events, storage.Event{Type: ent.kind, KV: kv})
	w.previous = append(w.previous, storage.KeyValue{Key: kv.Key, Revision: ent.previous})
	return len(ent.value), nil
}
