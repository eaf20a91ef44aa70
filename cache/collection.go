package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Collection holds all objects of one resource in one encoding, fed by one
// upstream watch. It is made and owned by a Manager. All methods are safe for
// concurrent use. Its version never goes back: when the upstream's does, the
// collection stops and the Manager makes another.
type Collection struct {
	resource *Resource
	encoding api.Encoding
	limits   *Limits
	store    *store
	feed     *feed
	prompt   PromptSource // nil if the source is not one
	fresh    flight.Group[struct{}, uint64]
	referrer referrer

	ctx    context.Context // ends with the reason for stopping
	cancel context.CancelCauseFunc
	builds sync.WaitGroup // of indexes
	ready  chan struct{}  // closed when the first list is complete
	closed chan struct{}  // closed when the feed has ended
	done   chan struct{}  // closed when all goroutines have
	began  time.Time

	isReady, isStopped atomic.Bool // ready or closed is closed
	used               atomic.Bool // since the manager last looked

	mu struct {
		sync.Mutex
		// attempt is closed, and replaced, when an attempt to start failed.
		attempt chan struct{}
		failed  int   // attempts
		err     error // of the last one, then why the collection stopped
	}
}

// collectionParts are what a Manager's collections share.
type collectionParts struct {
	source  Source
	limits  *Limits
	listing chan struct{}
	content *atomic.Uint64
	metrics *metrics
	jitter  func(n int64) int64 // a random number in [0,n)
	log     *slog.Logger
}

func newCollection(ctx context.Context, p *collectionParts, res *Resource, enc api.Encoding) *Collection {
	c := &Collection{
		resource: res,
		encoding: enc,
		limits:   p.limits,
		ready:    make(chan struct{}),
		closed:   make(chan struct{}),
		done:     make(chan struct{}),
		began:    time.Now(),
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.mu.attempt = make(chan struct{})
	c.used.Store(true)
	c.store = newStore(enc, p.limits, p.content, c.builds.Go)
	c.feed = &feed{
		source:   p.source,
		resource: res,
		encoding: enc,
		store:    c.store,
		log:      p.log.With("group", res.Group, "resource", res.Resource, "encoding", enc.String()),
		metrics:  p.metrics.feed(res, enc),
		listing:  p.listing,
		backoff:  backoff{jitter: p.jitter},
		ready:    c.synced,
		failed:   c.attemptFailed,
	}
	if prompt, ok := p.source.(PromptSource); ok {
		c.prompt = prompt
		c.feed.metrics.told = c.feed.metrics.fresh.WithLabelValues("told")
	} else {
		c.referrer.source, _ = p.source.(ReferenceSource)
	}
	return c
}

// run feeds the collection until it is over and returns the reason.
func (c *Collection) run() error {
	err := c.feed.run(c.ctx)
	c.cancel(err)
	c.stop(err)
	return err
}

// synced is called by the feed when the first list is complete.
func (c *Collection) synced() {
	c.feed.metrics.syncSeconds.Observe(time.Since(c.began).Seconds())
	c.isReady.Store(true)
	close(c.ready)
}

// attemptFailed is called by the feed when a list failed before that.
func (c *Collection) attemptFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.failed++
	c.mu.err = err
	close(c.mu.attempt)
	c.mu.attempt = make(chan struct{})
}

// stop ends what hangs on the feed, which has ended.
func (c *Collection) stop(reason error) {
	c.mu.Lock()
	c.mu.err = reason
	c.mu.Unlock()
	c.isStopped.Store(true)
	var dropped *droppedError
	switch {
	case errors.As(reason, &dropped):
		c.store.close(dropped.reason)
	case errors.Is(reason, ErrRewound):
		c.store.close(fmt.Errorf("%w: %w", watchmux.ErrGone, reason))
	default:
		c.store.close(fmt.Errorf("%w: %w", watchmux.ErrStopped, reason))
	}
	close(c.closed)
}

// stoppedError says that a collection stopped while it was waited for.
type stoppedError struct{ reason error }

func (e *stoppedError) Error() string {
	return "the cache of this resource stopped: " + e.reason.Error()
}
func (e *stoppedError) Unwrap() error { return e.reason }

// await returns when the collection is synced, stopped, or not likely to be
// synced soon: an attempt failed in a way that another will not change, or two
// did.
func (c *Collection) await(ctx context.Context) error {
	for {
		c.mu.Lock()
		attempt, failed, err := c.mu.attempt, c.mu.failed, c.mu.err
		c.mu.Unlock()
		switch {
		case c.isStopped.Load():
			return &stoppedError{c.reason()}
		case c.isReady.Load():
			return nil
		case failed > 1, failed > 0 && isRefused(err):
			return err
		}
		select {
		case <-c.ready:
		case <-attempt:
		case <-c.closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Resource is what the collection holds.
func (c *Collection) Resource() *Resource { return c.resource }

// Encoding is the encoding of the collection's objects.
func (c *Collection) Encoding() api.Encoding { return c.encoding }

// ListKind is the kind and apiVersion of the resource's lists (PodList, v1), as
// the upstream says them.
func (c *Collection) ListKind() (kind, apiVersion string) {
	k := c.feed.kind.Load()
	if k == nil {
		return "", "" // not synced: nobody has the collection yet
	}
	return k.Kind, k.APIVersion
}

// Warnings are the values of the Warning headers that the upstream sends with
// every answer of the resource: that its version is deprecated. They must not be
// modified.
func (c *Collection) Warnings() []string {
	if k := c.feed.kind.Load(); k != nil {
		return k.Warnings
	}
	return nil
}

// RV is the version that the collection holds.
func (c *Collection) RV() uint64 { return c.store.rv.Load() }

// View is the current state: O(1), the same pointer while nothing changes.
func (c *Collection) View() *View { return c.store.current() }

// ViewAt is the state at exactly rv: the current one, a retained one, or one
// made by undoing history, which is then retained. The error is an *ExpiredError
// when that is no longer possible (or never was, between the versions around a
// relist), a *TooLargeError when rv is above the collection's version (WaitFor
// first). It must not be called from a mux's notify.
func (c *Collection) ViewAt(rv uint64) (*View, error) { return c.store.viewAt(rv, time.Now()) }

// Retain keeps v for ViewAt, within the limits of age and bytes, so that a
// chunked list can go on from the version at which it began.
func (c *Collection) Retain(v *View) { c.store.retain.put(v, time.Now()) }

// Select returns the objects that f matches, in key order, and the version at
// which they are the whole answer. ok is false when no index helps: the caller
// then scans a View; and when ctx has ended.
func (c *Collection) Select(ctx context.Context, f *object.Filter) (objs []*object.Object, rv uint64, ok bool) {
	return c.store.selectIndexed(ctx, f, c.resource.Namespaced, time.Now())
}

// WaitFor returns when the collection holds rv. The error is a *TooLargeError
// after timeout (at once if that is 0), the context's error, or the reason why
// the collection stopped.
func (c *Collection) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if c.RV() >= rv {
		return nil
	}
	if c.prompt != nil && timeout > 0 {
		// Maybe nothing of this resource is missing.
		_ = c.advance(ctx, timeout)
	}
	return c.waitFor(ctx, rv, timeout)
}

// waitFor is WaitFor for what the feed is bound to bring.
func (c *Collection) waitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if c.RV() >= rv {
		return nil
	}
	if timeout <= 0 {
		return &TooLargeError{RV: rv, Current: c.RV()}
	}
	w := c.store.waits.version(rv)
	defer c.store.waits.cancel(w)
	if c.RV() >= rv {
		return nil
	}
	return c.wait(ctx, w.done, timeout, rv)
}

// wait waits for done.
func (c *Collection) wait(ctx context.Context, done <-chan struct{}, timeout time.Duration, rv uint64) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return &TooLargeError{RV: rv, Current: c.RV()}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closed:
		return &stoppedError{c.reason()}
	}
}

// reason is why the last attempt to start failed, or why the collection stopped.
func (c *Collection) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// HasSeenDelete reports whether the collection holds rv and no object with
// that uid at key ("" for any uid).
func (c *Collection) HasSeenDelete(key, uid string, rv uint64) bool {
	v := c.View()
	if v.RV() < rv {
		return false
	}
	o := v.Get(key)
	return o == nil || uid != "" && o.UID != uid
}

// WaitDeleted returns when HasSeenDelete does; its errors are those of WaitFor.
// rv is the newest version of the object that the caller knows of (the one in
// the delete's response), 0 if none: it keeps an object that the collection has
// not seen yet from passing as deleted.
func (c *Collection) WaitDeleted(ctx context.Context, key, uid string, rv uint64, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	if err := c.WaitFor(ctx, rv, timeout); err != nil {
		return err
	}
	for {
		w := c.store.waits.key(key)
		if c.HasSeenDelete(key, uid, rv) {
			c.store.waits.cancelKey(key, w)
			return nil
		}
		err := c.wait(ctx, w.done, time.Until(deadline), rv)
		c.store.waits.cancelKey(key, w)
		if err != nil {
			return err
		}
	}
}

// Fresh returns a version which the collection holds and which is at least as
// new as every write that the upstream acknowledged before the call. Callers
// share rounds, never one that began before they came. The error wraps
// ErrUnsupported when the source cannot tell its version; it is a *TooLargeError
// when the feed does not bring it in time.
func (c *Collection) Fresh(ctx context.Context) (uint64, error) {
	if rv, err := c.FreshAtOnce(ctx); !errors.Is(err, ErrUnsupported) {
		return rv, err
	}
	rv, _, err := c.fresh.Do(ctx, struct{}{}, c.freshRound)
	return rv, err
}

// Watch is Mux().Watch.
func (c *Collection) Watch(from uint64, f *object.Filter, notify func()) (*watchmux.Watcher, error) {
	return c.store.mux.Watch(from, f, notify)
}

// Mux fans out the collection's events.
func (c *Collection) Mux() *watchmux.Mux { return c.store.mux }

// BookmarkTemplate is the object of a bookmark as the upstream sent it, in the
// collection's encoding (protobuf: the bare message) and with whatever version
// and annotation it then had, nil before the first; for object.ParseBookmark. It
// must not be modified.
func (c *Collection) BookmarkTemplate() []byte {
	if b := c.feed.bookmark.Load(); b != nil {
		return *b
	}
	return nil
}

// State says how the collection is doing.
func (c *Collection) State() State {
	switch {
	case c.isStopped.Load():
		return State{Phase: Stopped, Err: c.reason()}
	case !c.isReady.Load():
		return State{Phase: Starting, Since: c.began, Err: c.reason()}
	}
	return c.feed.health.state(c.feed.source.LastContact(), c.limits.StaleAfter)
}

// Closed is closed when the collection has stopped for good; State then has the
// reason. Its views stay readable.
func (c *Collection) Closed() <-chan struct{} { return c.closed }
