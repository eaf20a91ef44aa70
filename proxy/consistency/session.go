package consistency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Session remembers how new the cache of each resource must be to hold what was
// written through this gateway, so that whoever reads and writes here sees their
// own writes, whichever client of the gateway made them.
//
// That is one version for each resource. A write whose answer tells its version
// raises it at once. Any other write is settled by the first read after it: the
// collection that is to answer saw the object go, or it was proved to be as new as
// the upstream, and the version that it then has is raised to. A version that a
// fresh collection does not have is none of this upstream (it was restored from a
// backup, say) and is forgotten. As versions of collections never go back, whoever
// reads after hold sees what hold saw.
//
// It is safe for concurrent use.
type Session struct {
	// known tells whether the cache may serve a resource; no others are remembered.
	known func(schema.GroupVersionResource) bool
	mu    struct {
		sync.Mutex
		resources map[schema.GroupResource]*writes // maxWritten at most
		// late is set if requests were served before startObserving was called.
		late bool
	}
	// observing is set once some read may be in session mode. Before that, writes are not
	// recorded, so that their answers need not be read.
	observing atomic.Bool
}

// writes is what went through this gateway to one resource.
type writes struct {
	// version is the one that a collection must have.
	version uint64
	// coming tells that the feeds are bound to bring version: it is that of a
	// change. Otherwise a quiet resource gets there by a proof only.
	coming bool
	// deleted are deletions whose version the answer did not tell.
	deleted map[deletion]struct{} // maxDeletions at most
	// unobserved tells that writes before startObserving are still to be proved.
	unobserved bool
	// unknown counts writes of which the answer told nothing (deletecollection, a
	// lost connection), settled is how many of them version covers.
	unknown, settled uint64
}

// deletion is an object that was deleted: its key in the cache and its uid.
type deletion struct{ key, uid string }

const (
	// maxWritten bounds the resources that are remembered. A cluster has some
	// hundreds; those of definitions that are gone stay. Others are not served in
	// session mode.
	maxWritten = 10_000
	// maxDeletions bounds the deletions of a resource that nobody has read since;
	// beyond it they count as writes of unknown effect.
	maxDeletions = 64
	// sessionWait is how long a read waits for a version that the feed is to bring.
	sessionWait = time.Second
	// deletionWait is how long a read waits for deletions before the upstream is
	// asked: they may have been a dry run's.
	deletionWait = 100 * time.Millisecond
	// proofWait bounds the proof that a collection is as new as the upstream.
	proofWait = 3 * time.Second
)

// errNotHeld says that the cache is not known to hold all writes.
var errNotHeld = errors.New("the cache is not known to hold every write made through this gateway")

// NewSession returns a session that remembers writes to resources that are known.
func NewSession(known func(schema.GroupVersionResource) bool, registerer prometheus.Registerer) *Session {
	s := &Session{known: known}
	s.mu.resources = make(map[schema.GroupResource]*writes)
	if registerer != nil {
		registerer.MustRegister(gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_session_resources",
			Help: fmt.Sprintf("Resources whose writes session reads wait for, of %d at most.", maxWritten),
		}, func() float64 { return float64(s.Resources()) }))
	}
	return s
}

// Resources returns the number of resources whose writes are remembered.
func (s *Session) Resources() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.resources)
}

// storageOf joins the names under which Kubernetes serves one storage.
func storageOf(gr schema.GroupResource) schema.GroupResource {
	switch {
	case gr.Group == "events.k8s.io":
		gr.Group = ""
	case gr == schema.GroupResource{Resource: "bindings"}:
		gr.Resource = "pods" // a binding is a write to a pod
	}
	return gr
}

// StartObserving begins to record writes. late tells that some may have been answered before: the
// first read of each resource proves then that its collection holds them.
func (s *Session) StartObserving(late bool) {
	if s.Observes() {
		return
	}
	s.mu.Lock()
	s.mu.late = late
	s.mu.Unlock()
	s.observing.Store(true)
}

// Observes reports whether writes are recorded.
func (s *Session) Observes() bool { return s.observing.Load() }

// write changes what is remembered of the resource that was written to.
func (s *Session) write(gvr schema.GroupVersionResource, change func(*writes)) {
	gr := storageOf(gvr.GroupResource())
	if !s.known(gr.WithVersion(gvr.Version)) {
		return // there is no collection of it, and one that begins later lists it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.writes(gr); w != nil {
		change(w)
	}
}

// writes returns those of gr, nil if there is no room for them; see pending. The caller holds mu.
func (s *Session) writes(gr schema.GroupResource) *writes {
	w := s.mu.resources[gr]
	if w == nil && len(s.mu.resources) < maxWritten {
		w = &writes{unobserved: s.mu.late}
		s.mu.resources[gr] = w
	}
	return w
}

// wrote records a write answered with a version.
func (w *writes) wrote(version uint64) {
	if version > w.version {
		w.version, w.coming = version, true
	}
}

// wroteUnknown records a write whose effect is not known.
func (w *writes) wroteUnknown() { w.unknown++ }

// wroteDeletion records that an object is gone.
func (w *writes) wroteDeletion(d deletion) {
	if len(w.deleted) >= maxDeletions {
		w.deleted = nil // the proof that is needed now covers them as well
		w.unknown++
		return
	}
	if w.deleted == nil {
		w.deleted = make(map[deletion]struct{})
	}
	w.deleted[d] = struct{}{}
}

// pending is what a collection must still show to hold every write.
type pending struct {
	version uint64
	coming  bool
	deleted []deletion
	unknown uint64 // 0 for none
	// unobserved tells that writes before startObserving are to be proved, too.
	unobserved bool
}

// pending returns what was recorded up to now; ok is false when that is not known.
func (s *Session) pending(gr schema.GroupResource) (p pending, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.resources[gr]
	if w == nil && s.mu.late {
		w = s.writes(gr)
	}
	if w == nil {
		return pending{}, len(s.mu.resources) < maxWritten
	}
	p.version, p.coming, p.unobserved = w.version, w.coming, w.unobserved
	for d := range w.deleted {
		p.deleted = append(p.deleted, d)
	}
	if w.unknown > w.settled {
		p.unknown = w.unknown
	}
	return p, true
}

// settle records that a collection at version rv holds all of p. With proof that is
// so because it is as new as the upstream was after p.
func (s *Session) settle(gr schema.GroupResource, p pending, rv uint64, proof bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.resources[gr]
	if w == nil {
		return
	}
	for _, d := range p.deleted {
		delete(w.deleted, d)
	}
	w.settled = max(w.settled, p.unknown)
	w.unobserved = w.unobserved && !proof
	switch {
	case rv > w.version:
		w.version, w.coming = rv, !proof
	case proof && w.version == p.version && rv < w.version:
		w.version, w.coming = rv, false // the version is not one of this upstream's
	}
}

// Hold waits until c holds every write to its resource that was answered through
// this gateway before the call; fresh is called if only a proof tells. Its error means: ask
// the upstream.
func (s *Session) Hold(ctx context.Context, c *cache.Collection, fresh func(context.Context) (uint64, error)) error {
	gr := storageOf(c.Resource().GroupResource())
	p, ok := s.pending(gr)
	if !ok {
		return errNotHeld
	}
	if p.unknown == 0 && !p.unobserved && p.fed(ctx, c) {
		if len(p.deleted) > 0 {
			s.settle(gr, p, c.RV(), false)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proofWait)
	defer cancel()
	rv, err := fresh(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	s.settle(gr, p, rv, true)
	return nil
}

// HoldsResponded reports whether c holds every write to its resource that was answered with
// what it did, without waiting for anything.
func (s *Session) HoldsResponded(ctx context.Context, c *cache.Collection) bool {
	p, ok := s.pending(storageOf(c.Resource().GroupResource()))
	if !ok || p.unobserved || p.version > c.RV() {
		return false
	}
	for _, d := range p.deleted {
		if c.WaitDeleted(ctx, d.key, d.uid, 0) != nil {
			return false
		}
	}
	return true
}

// fed waits until the feed has brought p, and reports whether it has.
func (p *pending) fed(ctx context.Context, c *cache.Collection) bool {
	if p.version > c.RV() && (!p.coming || c.WaitFor(ctx, p.version, sessionWait) != nil) {
		return false
	}
	if len(p.deleted) == 0 {
		return true
	}
	deadline := time.Now().Add(deletionWait)
	for _, d := range p.deleted {
		if c.WaitDeleted(ctx, d.key, d.uid, time.Until(deadline)) != nil {
			return false
		}
	}
	return true
}
