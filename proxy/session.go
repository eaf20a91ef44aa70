package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
)

// session remembers what was written through this gateway, so that a cached read
// can wait until the cache holds it: whoever reads and writes here sees their
// own writes, whichever client of the gateway made them.
//
// It is safe for concurrent use.
type session struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		resources map[schema.GroupResource]*writes // at most one entry a resource of the cluster
	}
}

// writes is what went through this gateway to one resource.
type writes struct {
	// version is the highest resourceVersion that a write was answered with.
	version uint64
	// deleted are the deletions whose version the answer did not tell, by key.
	deleted map[string]deletion
	// unknown counts writes whose effect the answer did not tell (evictions,
	// deletecollection, lost connections); proven is the count up to which each
	// collection was proven fresh afterwards.
	unknown uint64
	proven  map[*cache.Collection]uint64
}

type deletion struct {
	uid string
	at  time.Time
}

const (
	// maxDeletions bounds the remembered deletions of one resource; beyond it
	// they count as writes of unknown effect.
	maxDeletions = 1024
	// deletionsFor is how long a deletion is remembered. A feed that is later
	// than this is stale, and stale collections answer no session reads.
	deletionsFor = 5 * time.Minute
	// sessionWait is how long a read waits for the feed to bring the writes.
	sessionWait = time.Second
	// deletionWait is how long a read waits for deletions before the upstream is
	// asked: they may have been a dry run's.
	deletionWait = 100 * time.Millisecond
)

// errNotHeld says that the cache does not hold all writes yet.
var errNotHeld = errors.New("the cache does not hold every write made through this gateway yet")

func newSession(now func() time.Time) *session {
	s := &session{now: now}
	s.mu.resources = make(map[schema.GroupResource]*writes)
	return s
}

// storageOf joins the two names under which Kubernetes serves one storage.
func storageOf(gr schema.GroupResource) schema.GroupResource {
	if gr.Group == "events.k8s.io" {
		gr.Group = ""
	}
	return gr
}

// lockedWrites returns gr's writes; s.mu is held.
func (s *session) lockedWrites(gr schema.GroupResource) *writes {
	gr = storageOf(gr)
	w := s.mu.resources[gr]
	if w == nil {
		w = &writes{deleted: make(map[string]deletion), proven: make(map[*cache.Collection]uint64)}
		s.mu.resources[gr] = w
	}
	return w
}

// wrote records a write answered with a version.
func (s *session) wrote(gr schema.GroupResource, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.lockedWrites(gr)
	w.version = max(w.version, version)
}

// deleted records that the object key with this uid is gone.
func (s *session) deleted(gr schema.GroupResource, key, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.lockedWrites(gr)
	now := s.now()
	for k, d := range w.deleted {
		if now.Sub(d.at) > deletionsFor {
			delete(w.deleted, k)
		}
	}
	if len(w.deleted) >= maxDeletions {
		w.unknown++
		return
	}
	w.deleted[key] = deletion{uid, now}
}

// wroteUnknown records a write whose effect is not known.
func (s *session) wroteUnknown(gr schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedWrites(gr).unknown++
}

// pending is what a collection must still hold.
type pending struct {
	version uint64
	unknown uint64 // 0 when proven
}

func (s *session) pending(gr schema.GroupResource, c *cache.Collection) pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.resources[storageOf(gr)]
	if w == nil {
		return pending{}
	}
	p := pending{version: w.version}
	if w.unknown > w.proven[c] {
		p.unknown = w.unknown
	}
	return p
}

// visible returns the deletions whose objects c still shows.
func (s *session) visible(gr schema.GroupResource, c *cache.Collection) map[string]deletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.resources[storageOf(gr)]
	if w == nil {
		return nil
	}
	var shown map[string]deletion
	view := c.View()
	for key, d := range w.deleted {
		if o := view.Get(key); o != nil && o.UID == d.uid {
			if shown == nil {
				shown = make(map[string]deletion)
			}
			shown[key] = d
		}
	}
	return shown
}

// proved records that c holds everything up to the unknown-th write.
func (s *session) proved(gr schema.GroupResource, c *cache.Collection, unknown uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.lockedWrites(gr)
	for old := range w.proven {
		select {
		case <-old.Closed():
			delete(w.proven, old)
		default:
		}
	}
	w.proven[c] = max(w.proven[c], unknown)
}

// hold waits until c holds every write to its resource that was answered through
// this gateway before the call. Its error means: ask the upstream.
func (s *session) hold(ctx context.Context, c *cache.Collection) error {
	gr := c.Resource().GroupResource()
	p := s.pending(gr, c)
	if p.version > c.View().RV() {
		if err := c.WaitFor(ctx, p.version, sessionWait); err != nil {
			return fmt.Errorf("%w: %w", errNotHeld, err)
		}
	}
	if p.unknown > 0 {
		if _, err := c.Fresh(ctx); err != nil {
			return fmt.Errorf("%w: %w", errNotHeld, err)
		}
		s.proved(gr, c, p.unknown)
	}
	// Only now: an object that was created and deleted here may have come just
	// before.
	return s.holdDeletions(ctx, gr, c)
}

// holdDeletions waits until c shows none of the deleted objects.
func (s *session) holdDeletions(ctx context.Context, gr schema.GroupResource, c *cache.Collection) error {
	deleted := s.visible(gr, c)
	deadline := s.now().Add(deletionWait)
	for key, d := range deleted {
		if err := c.WaitDeleted(ctx, key, d.uid, 0, deadline.Sub(s.now())); err != nil {
			return s.proveDeletions(ctx, gr, c, deleted)
		}
	}
	return nil
}

// proveDeletions asks the upstream how new c must be to hold every write. What
// c shows of deleted then is there still: nothing deleted it, as in a dry run
// whose options came in the body.
func (s *session) proveDeletions(ctx context.Context, gr schema.GroupResource, c *cache.Collection, deleted map[string]deletion) error {
	if _, err := c.Fresh(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.lockedWrites(gr)
	for key, d := range deleted {
		if w.deleted[key] == d && !c.HasSeenDelete(key, d.uid, 0) {
			delete(w.deleted, key)
		}
	}
	return nil
}
