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

// Session tracks how new the cache of each resource must be to hold the writes made through this
// gateway, so that clients see their own writes and those of each other. A read in session mode that the upstream had to
// serve counts as a write of unknown effect: it may have shown more than the cache has.
//
// It keeps one version per resource. A write whose response names a version raises it at once. Any
// other write is settled by the first read after it: either the collection has seen the object go,
// or a freshness check has shown that it is as new as the upstream, and its version then becomes the
// one to wait for. If a fresh collection does not have the version, the version is not from this
// upstream (a backup may have been restored) and is forgotten. The version of a collection never
// decreases, so a read after Hold sees at least what Hold saw.
//
// It is safe for concurrent use.
type Session struct {
	// known reports whether the cache may serve a resource. Writes to others are not tracked.
	known func(schema.GroupVersionResource) bool
	mu    struct {
		sync.Mutex
		resources map[schema.GroupResource]*writes // maxWritten at most
		// late is true if requests were served before StartObserving was called.
		late bool
	}
	// observing is true once a read may be in session mode. Before that, writes are not
	// recorded, so that their responses need not be read.
	observing atomic.Bool
}

// writes are the writes made through this gateway to one resource.
type writes struct {
	// version is the version that a collection must have.
	version uint64
	// coming is true if version belongs to a change, so that the reflectors will deliver it.
	// Otherwise only a freshness check can show that an idle resource has it.
	coming bool
	// deleted are deletions whose response did not name a version.
	deleted map[deletion]struct{} // maxDeletions at most
	// unobserved is true while writes made before StartObserving need a freshness check.
	unobserved bool
	// unknown counts writes of unknown effect (deletecollection, a lost connection), settled
	// those of them that version covers.
	unknown, settled uint64
}

// deletion is an object that was deleted: its key in the cache and its uid.
type deletion struct{ key, uid string }

const (
	// maxWritten bounds the resources that are tracked. A cluster has a few hundred, and those
	// of deleted definitions stay. Beyond it, resources are not served in session mode.
	maxWritten = 10_000
	// maxDeletions bounds the deletions of a resource since its last read. Beyond it, they
	// count as writes of unknown effect.
	maxDeletions = 64
	// sessionWait is how long a read waits for the reflector to deliver a version.
	sessionWait = time.Second
	// deletionWait is how long a read waits for deletions before a freshness check: they may
	// have been dry runs.
	deletionWait = 100 * time.Millisecond
	// freshnessTimeout is the timeout of the freshness check.
	freshnessTimeout = 3 * time.Second
)

// errNotHeld is the error of Hold.
var errNotHeld = errors.New("the cache is not known to hold every write made through this gateway")

// NewSession returns a session that tracks writes to the resources that known reports. registerer may
// be nil.
func NewSession(known func(schema.GroupVersionResource) bool, registerer prometheus.Registerer) *Session {
	s := &Session{known: known}
	s.mu.resources = make(map[schema.GroupResource]*writes)
	gaugefunc.Register(registerer, "kubeweir_session_resources",
		fmt.Sprintf("Resources with writes that session reads wait for; at most %d.", maxWritten), s.Resources)
	return s
}

// Resources returns the number of resources whose writes are tracked.
func (s *Session) Resources() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.resources)
}

// storageOf maps the names under which Kubernetes serves one storage to one of them.
func storageOf(gr schema.GroupResource) schema.GroupResource {
	switch {
	case gr.Group == "events.k8s.io":
		gr.Group = ""
	case gr == schema.GroupResource{Resource: "bindings"}:
		gr.Resource = "pods" // a binding is a write to a pod
	}
	return gr
}

// StartObserving begins to record writes. If late is true, writes may have been made before: the
// first read of each resource then makes a freshness check.
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

// write changes the writes of a resource.
func (s *Session) write(gvr schema.GroupVersionResource, change func(*writes)) {
	gr := storageOf(gvr.GroupResource())
	if !s.known(gr.WithVersion(gvr.Version)) {
		return // it has no collection, and one that begins later lists it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.writes(gr); w != nil {
		change(w)
	}
}

// writes returns the writes to gr, or nil if there is no room for them; see pending. The caller holds
// mu.
func (s *Session) writes(gr schema.GroupResource) *writes {
	w := s.mu.resources[gr]
	if w == nil && len(s.mu.resources) < maxWritten {
		w = &writes{unobserved: s.mu.late}
		s.mu.resources[gr] = w
	}
	return w
}

// wrote records a write whose response names a version.
func (w *writes) wrote(version uint64) {
	if version > w.version {
		w.version, w.coming = version, true
	}
}

// wroteUnknown records a write of unknown effect.
func (w *writes) wroteUnknown() { w.unknown++ }

// wroteDeletion records that an object is gone.
func (w *writes) wroteDeletion(d deletion) {
	if len(w.deleted) >= maxDeletions {
		w.deleted = nil // the freshness check that is needed now covers them
		w.unknown++
		return
	}
	if w.deleted == nil {
		w.deleted = make(map[deletion]struct{})
	}
	w.deleted[d] = struct{}{}
}

// ObserveRead records that the upstream served a read in session mode, so that the cache serves none that is older.
func (s *Session) ObserveRead(gvr schema.GroupVersionResource) { s.write(gvr, (*writes).wroteUnknown) }

// pending is what a collection must still show to hold every write.
type pending struct {
	version uint64
	coming  bool
	deleted []deletion
	unknown uint64 // 0 for none
	// unobserved is true if writes made before StartObserving need a freshness check.
	unobserved bool
}

// pending returns the writes recorded so far. ok is false if they are not known.
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

// settle records that a collection at version rv holds all of p. proof is true if a freshness check
// has shown it.
func (s *Session) settle(gr schema.GroupResource, p pending, rv uint64, confirmed bool) {
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
	w.unobserved = w.unobserved && !confirmed
	switch {
	case rv > w.version:
		w.version, w.coming = rv, !confirmed
	case confirmed && w.version == p.version && rv < w.version:
		w.version, w.coming = rv, false // the version is not from this upstream
	}
}

// Hold waits until c holds every write to its resource that completed through this gateway before
// the call. It calls fresh, which makes a freshness check, if nothing else can show it. After an
// error the read must be served by the upstream.
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
	ctx, cancel := context.WithTimeout(ctx, freshnessTimeout)
	defer cancel()
	rv, err := fresh(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	s.settle(gr, p, rv, true)
	return nil
}

// HoldsResponded reports, without waiting, whether c holds every write to its resource whose response
// named its effect.
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

// fed waits for the reflector to deliver p, and reports whether it has.
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
