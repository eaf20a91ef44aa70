package registry

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// resultBuffer is the number of events that may wait for their reader, so that few of
	// them cost a switch of goroutines. Further events wait in the engine, which ends a
	// watch that falls behind its history.
	resultBuffer = 16
	// initialPage is how many objects are read at a time for the initial events.
	initialPage = 1000
	// lastBookmark is how long before its deadline a watch gets one more bookmark, as
	// those of kube-apiserver's watch cache do.
	lastBookmark = 2 * time.Second
)

// Watch implements storage.Interface. Besides what apiserver's storage/etcd3 sends, a
// watch with Predicate.AllowWatchBookmarks or ProgressNotify gets bookmarks: whenever
// the engine reports progress, after events that share a revision, when Progress or
// RequestWatchProgress asks for it, once a bookmark period, and shortly before the
// deadline of ctx.
//
// The caller reads events until it calls Stop or ctx ends. Either ends the watch's goroutine,
// after which the channel of results is closed.
func (s *Store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	key, err := s.key(key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	revision, err := s.versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if opts.ProgressNotify && s.newFunc == nil {
		return nil, apierrors.NewInternalError(errors.New("progressNotify for watch is unsupported because no newFunc was provided"))
	}
	w := &watcher{
		store:     s,
		key:       key,
		opts:      opts,
		all:       opts.Predicate.Empty() && (opts.Predicate.ShardSelector == nil || opts.Predicate.ShardSelector.Empty()),
		bookmarks: s.newFunc != nil && (opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify),
		after:     revision,
		// Without the option what exists comes first in a watch from no version or 0.
		initialEvents: revision == 0,
		results:       make(chan watch.Event, resultBuffer),
	}
	if opts.SendInitialEvents != nil {
		w.initialEvents = *opts.SendInitialEvents
	}
	// With neither a version nor initial events a watch begins at this moment, which
	// is over when Watch returns.
	if revision == 0 && !w.initialEvents {
		if w.after, err = s.engine.CurrentRevision(ctx); err != nil {
			return nil, engineError(err)
		}
	}
	if t, ok := ctx.Value(trackerKey{}).(*Tracker); ok {
		w.tracked = true
		t.watch.Store(w)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	go w.run()
	flowcontrol.WatchInitialized(ctx)
	return w, nil
}

// watcher is one watch of a Store. Its fields but cancel belong to the goroutine of run.
type watcher struct {
	store     *Store
	key       string
	opts      storage.ListOptions
	all       bool // every object matches
	bookmarks bool
	tracked   bool   // by a Tracker
	after     uint64 // events are of later revisions
	// initialEvents means that existing objects come first, as ADDED events.
	initialEvents bool
	ctx           context.Context
	cancel        context.CancelFunc
	results       chan watch.Event
	progress      progress
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) run() {
	defer close(w.results)
	defer w.cancel()
	if w.bookmarks {
		w.store.progress.add(w.store.resource.Resource, &w.progress)
		defer w.store.progress.remove(w.store.resource.Resource, &w.progress)
	}
	err := w.deliver()
	if w.ctx.Err() != nil {
		return
	}
	if status := watchStatus(err); status != nil {
		w.send(watch.Event{Type: watch.Error, Object: status})
	}
}

// deliver sends all events; it returns only with an error. A panic ends this watch, with
// an ERROR event, and not the process: objects are decoded and converted here, by code
// of the libraries and by what definitions and webhooks say.
func (w *watcher) deliver() (err error) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(w.ctx).Error(nil, "panic in a watch", "resource", w.store.resource.String(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic in a watch of %s", w.store.resource)
		}
	}()
	if err := w.initial(); err != nil {
		return err
	}
	return w.follow()
}

// initial sends the existing objects, and the bookmark that ends them if requested.
func (w *watcher) initial() error {
	if !w.initialEvents {
		return nil
	}
	read := engine.RangeOptions{Prefix: w.key, Exact: !w.opts.Recursive}
	if w.opts.Recursive {
		read.Limit = initialPage
	}
	for {
		result, err := w.store.engine.Range(w.ctx, read)
		if err != nil {
			return err
		}
		if result.Revision < w.after {
			return storage.NewTooLargeResourceVersionError(w.after, result.Revision, tooLargeRetry)
		}
		for i := range result.KVs {
			if err := w.sendChange(engine.Event{Type: engine.Created, KV: result.KVs[i]}); err != nil {
				return err
			}
		}
		read.Revision = result.Revision
		if !result.More {
			break
		}
		if len(result.KVs) == 0 {
			return fmt.Errorf("no keys from %q on, though there were to be more", read.From)
		}
		read.From = result.KVs[len(result.KVs)-1].Key + "\x00"
	}
	w.after = read.Revision
	if w.opts.SendInitialEvents != nil && w.opts.Predicate.AllowWatchBookmarks && w.bookmarks {
		return w.sendBookmark(w.after, true)
	}
	return nil
}

// follow sends the changes from then on; it returns only with an error.
func (w *watcher) follow() error {
	changes, err := w.store.engine.Watch(w.ctx, engine.WatchOptions{Prefix: w.key, After: w.after})
	if err != nil {
		return err
	}
	defer changes.Close()
	w.progress.open(changes, w.after)
	defer w.progress.end()
	if w.bookmarks {
		defer w.remind().Stop()
	}
	for {
		batch, err := changes.Next(w.ctx)
		if err != nil {
			return err
		}
		for i := range batch.Events {
			event := &batch.Events[i]
			if !w.opts.Recursive && event.KV.Key != w.key {
				continue
			}
			if err := w.sendChange(*event); err != nil {
				return err
			}
		}
		if w.progress.done(batch, w.tracked) && w.bookmarks {
			if err := w.sendBookmark(batch.Revision, false); err != nil {
				return err
			}
		}
	}
}

// remind requests progress once a period and before the deadline, until the timer is
// stopped. A timer that fires during the stop sees the end of the context.
func (w *watcher) remind() *time.Timer {
	deadline, limited := w.ctx.Deadline()
	next := func() time.Duration {
		if last := time.Until(deadline) - lastBookmark; limited && last > 0 {
			return min(last, w.store.bookmarkPeriod)
		}
		return w.store.bookmarkPeriod
	}
	ready := make(chan struct{}) // closed once timer is set
	var timer *time.Timer
	timer = time.AfterFunc(next(), func() {
		<-ready
		if w.ctx.Err() == nil {
			w.progress.remind()
			timer.Reset(next())
		}
	})
	close(ready)
	return timer
}

// sendChange sends the event of a change, if it concerns this watch.
func (w *watcher) sendChange(change engine.Event) error {
	event, err := w.event(change)
	if err != nil || event.Object == nil {
		return err
	}
	if !w.send(event) {
		return w.ctx.Err()
	}
	w.progress.sent(change.KV.Revision, w.bookmarks)
	return nil
}

// event returns the watch event of a change: an object that enters the selection is ADDED,
// one that leaves it DELETED with its last state in it. All carry the change's revision. A
// change outside the selection is the zero Event.
func (w *watcher) event(change engine.Event) (watch.Event, error) {
	var before, now runtime.Object
	var err error
	if change.Type != engine.Deleted {
		if now, err = w.decode(change.KV.Key, change.KV.Value, change.KV.Revision); err != nil {
			return watch.Event{}, err
		}
	}
	if change.Type == engine.Updated && w.all {
		return watch.Event{Type: watch.Modified, Object: now}, nil
	}
	if change.Type != engine.Created {
		if change.Previous == nil {
			return watch.Event{}, fmt.Errorf("the state of %q before revision %d is unknown", change.KV.Key, change.KV.Revision)
		}
		if before, err = w.decode(change.KV.Key, change.Previous.Value, change.KV.Revision); err != nil {
			return watch.Event{}, err
		}
	}
	was, is := w.matches(before), w.matches(now)
	switch {
	case was && is:
		return watch.Event{Type: watch.Modified, Object: now}, nil
	case is:
		return watch.Event{Type: watch.Added, Object: now}, nil
	case was:
		return watch.Event{Type: watch.Deleted, Object: before}, nil
	default:
		return watch.Event{}, nil
	}
}

func (w *watcher) decode(key string, data []byte, revision uint64) (runtime.Object, error) {
	data, _, err := w.store.transformer.TransformFromStorage(w.ctx, data, value.DefaultContext(key))
	if err != nil {
		return nil, err
	}
	obj, err := runtime.Decode(w.store.codec, data)
	if err != nil {
		return nil, err
	}
	if err := w.store.versioner.UpdateObject(obj, revision); err != nil {
		return nil, fmt.Errorf("set resourceVersion %d: %w", revision, err)
	}
	return obj, nil
}

// matches reports whether obj is selected. Nil and objects without attributes are not.
func (w *watcher) matches(obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	matched, err := w.opts.Predicate.Matches(obj)
	return err == nil && matched
}

// sendBookmark sends a bookmark: everything up to revision was delivered.
func (w *watcher) sendBookmark(revision uint64, endOfInitialEvents bool) error {
	obj := w.store.newFunc()
	if err := w.store.versioner.UpdateObject(obj, revision); err != nil {
		return fmt.Errorf("set resourceVersion %d of a bookmark: %w", revision, err)
	}
	if endOfInitialEvents {
		if err := storage.AnnotateInitialEventsEndBookmark(obj); err != nil {
			return fmt.Errorf("annotate a bookmark: %w", err)
		}
	}
	if !w.send(watch.Event{Type: watch.Bookmark, Object: obj}) {
		return w.ctx.Err()
	}
	w.progress.sent(revision, false)
	return nil
}

// send waits for the reader; it returns false if the watch has ended.
func (w *watcher) send(event watch.Event) bool {
	select {
	case w.results <- event:
		return true
	case <-w.ctx.Done():
		return false
	}
}
