package registry

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// Progress knows the open watches of some Stores that allow bookmarks, to ask them
// how far they are. Its zero value is ready; it is safe for concurrent use.
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
// A request raises wanted first and asks the engine's watcher then. Whatever batch
// answers it is therefore returned after wanted was raised, and due sees that. Batches
// of other events that come in between neither answer it nor make it forgotten.
type progress struct {
	// told is the revision of the last event or bookmark; written by the watch.
	told atomic.Uint64
	// wanted is the newest revision that was asked for.
	wanted atomic.Uint64

	mu struct {
		sync.Mutex
		// watcher is nil until the initial events are delivered.
		watcher engine.Watcher
	}
}

// open tells from where on the watcher can be asked.
func (p *progress) open(w engine.Watcher) {
	p.mu.Lock()
	p.mu.watcher = w
	p.mu.Unlock()
	if p.wanted.Load() > p.told.Load() {
		w.RequestProgress()
	}
}

func (p *progress) request(revision uint64) {
	for {
		old := p.wanted.Load()
		if revision <= old || p.wanted.CompareAndSwap(old, revision) {
			break
		}
	}
	p.ask()
}

// ask makes the watcher report, be it the same revision again.
func (p *progress) ask() {
	p.mu.Lock()
	w := p.mu.watcher
	p.mu.Unlock()
	if w != nil {
		w.RequestProgress()
	}
}

// due reports whether a bookmark of the batch's revision follows its events.
func (p *progress) due(batch engine.Batch) bool {
	told := p.told.Load()
	if len(batch.Events) == 0 {
		return batch.Revision >= told
	}
	return batch.Revision > told && p.wanted.Load() > told
}
