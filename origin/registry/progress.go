package registry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// Progress has the open watches of some Stores that allow bookmarks, to request bookmarks
// from them. Its zero value is ready; it is safe for concurrent use.
type Progress struct {
	mu struct {
		sync.RWMutex
		// watches by the name of the resource, without its group: events are one
		// resource under two groups, and where two groups use a name for different
		// things a bookmark too many does no harm.
		watches map[string]map[*progress]struct{}
	}
}

// Request makes every open watch of the resource that allows bookmarks deliver one, or
// an event, of at least revision, as soon as all before it is delivered. Revision must
// have been reached (Engine.CurrentRevision). It does not block.
func (p *Progress) Request(resource schema.GroupResource, revision uint64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for w := range p.mu.watches[resource.Resource] {
		w.request(revision)
	}
}

func (p *Progress) add(resource string, w *progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.watches == nil {
		p.mu.watches = make(map[string]map[*progress]struct{})
	}
	if p.mu.watches[resource] == nil {
		p.mu.watches[resource] = make(map[*progress]struct{})
	}
	p.mu.watches[resource][w] = struct{}{}
}

func (p *Progress) remove(resource string, w *progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.watches[resource], w)
	if len(p.mu.watches[resource]) == 0 {
		delete(p.mu.watches, resource)
	}
}

// progress is how far one watch is.
//
// A request first raises wanted, then requests progress from the engine's watcher. The batch that
// responds to it is therefore returned after wanted was raised, and done sees the raised value.
// Batches of other events that arrive in between neither satisfy the request nor drop it.
type progress struct {
	mu struct {
		sync.Mutex
		// watcher is nil until the initial events are delivered, and after the end.
		watcher engine.Watcher
		// lastSent is the revision of the last event or bookmark sent.
		lastSent uint64
		// shared is true if several events had that revision. A bookmark follows them, as
		// the reader of one cannot know whether there are more.
		shared bool
		// reached is the newest revision up to which nothing is missing.
		reached uint64
		// wanted is the newest revision of which a bookmark was requested.
		wanted uint64
		// due is true if a bookmark of any revision must follow, even after an event of the
		// same.
		due bool
		// advanced is closed when reached grows and when the watch ends; nil without
		// waiters.
		advanced chan struct{}
	}
}

// open records that everything up to revision is delivered, and the engine's watcher.
func (p *progress) open(w engine.Watcher, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.watcher, p.mu.lastSent, p.mu.reached, p.mu.shared = w, revision, revision, false
	if p.mu.wanted > revision {
		w.RequestProgress()
	}
}

// end records the end of the watch.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.watcher = nil
	p.wake()
}

func (p *progress) wake() {
	if p.mu.advanced != nil {
		close(p.mu.advanced)
		p.mu.advanced = nil
	}
}

// request requests a bookmark of at least revision.
func (p *progress) request(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.wanted = max(p.mu.wanted, revision)
	p.requestProgress()
}

func (p *progress) requestProgress() {
	if p.mu.watcher != nil {
		p.mu.watcher.RequestProgress()
	}
}

// remind requests a bookmark of any revision.
func (p *progress) remind() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.due = true
	p.requestProgress()
}

// sent records an event or bookmark that the watch's reader will get. sharing is true for an
// event that a bookmark can follow.
func (p *progress) sent(revision uint64, sharing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.shared = revision == p.mu.lastSent && (sharing || p.mu.shared)
	p.mu.lastSent = revision
}

// done records that all events of a batch were sent, and reports whether a bookmark of its
// revision must follow: if one is due or wanted, if the last events share their revision, or
// if the batch only reports progress and no Tracker requested that.
func (p *progress) done(batch engine.Batch, tracked bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if batch.Revision > p.mu.reached {
		p.mu.reached = batch.Revision
	}
	p.wake()
	if (p.mu.due || p.mu.shared && len(batch.Events) > 0) && batch.Revision >= p.mu.lastSent {
		p.mu.due = false
		return true
	}
	if len(batch.Events) == 0 {
		return batch.Revision >= p.mu.lastSent && (!tracked || p.mu.wanted > p.mu.lastSent)
	}
	return batch.Revision > p.mu.lastSent && p.mu.wanted > p.mu.lastSent
}

// reach waits until the watch has reached revision. lastSent and shared are as of the same
// moment.
func (p *progress) reach(ctx context.Context, revision uint64) (lastSent, reached uint64, shared bool, err error) {
	for {
		p.mu.Lock()
		lastSent, reached, shared = p.mu.lastSent, p.mu.reached, p.mu.shared
		if p.mu.watcher == nil || reached >= revision {
			open := p.mu.watcher != nil
			p.mu.Unlock()
			if !open {
				return 0, 0, false, ErrNotWatching
			}
			return lastSent, reached, shared, nil
		}
		if p.mu.advanced == nil {
			p.mu.advanced = make(chan struct{})
		}
		advanced := p.mu.advanced
		p.requestProgress()
		p.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return 0, 0, false, ctx.Err()
		}
	}
}

// ErrNotWatching means that the watch has not sent all of its initial events yet, or is over.
var ErrNotWatching = errors.New("there is no open watch")

// Tracker reports how far one watch is, without a bookmark. It is safe for concurrent use.
type Tracker struct {
	watch atomic.Pointer[watcher]
}

type trackerKey struct{}

// Track returns a context, and a Tracker of the watch that a Store begins with it; the last one
// if there are several. A tracked watch gets bookmarks only once a period and on request, not
// for each progress that the engine reports.
func Track(ctx context.Context) (context.Context, *Tracker) {
	t := new(Tracker)
	return context.WithValue(ctx, trackerKey{}, t), t
}

// Current returns how far the watch's reader must have read to be current. current is at least
// the engine's revision at the time of the call. last is the revision of the newest event or
// bookmark up to current, or of the watch's beginning if there was none: a reader that has read
// up to last has missed nothing up to current. With shared, several events have the revision
// last, and a bookmark follows them. Current does not wait if the watch has reached the
// engine's revision already.
//
// The error is ErrNotWatching, that of ctx or one of the engine.
func (t *Tracker) Current(ctx context.Context) (last, current uint64, shared bool, err error) {
	w := t.watch.Load()
	if w == nil {
		return 0, 0, false, ErrNotWatching
	}
	revision, err := w.store.engine.CurrentRevision(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	return w.progress.reach(ctx, revision)
}
