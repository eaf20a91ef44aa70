// Package cachetest provides an in-memory API server for tests of the cache and its users: a
// source.Source with its own revision counter that can lose connections, compact history, go back
// in time and fall silent.
package cachetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// Object is an API object: a pointer to a type of k8s.io/api, or an *unstructured.Unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// Source is the API server. It is safe for concurrent use. Create it with New.
type Source struct {
	mu struct {
		sync.Mutex
		rev, compacted uint64
		uids           int
		resources      map[schema.GroupVersionResource]*resource
		streams        map[*stream]struct{}
		faults         faults
		frozen         time.Time // time of the last contact, while silent
		delay          time.Duration
		calls          []string
		server         string
		requested      int
		changed        chan struct{} // closed at each change, then replaced
	}
}

// resource is the history of one resource; the last entry per key is its state.
type resource struct {
	res  *source.Resource
	log  []Change // by ascending revision
	live map[string]Change
}

// stream is one open watch. Its fields are guarded by Source.mu.
type stream struct {
	res    *source.Resource
	enc    api.Encoding
	cursor uint64 // revision up to which events were delivered, or skipped as too old
	held   bool
	broken bool
	err    error
	cut    bool // end after left events
	hold   bool // hold after left events
	left   int
	rest   []source.Event // events before the cursor, while held
	ended  bool           // the timeout passed
	timer  bool           // a bookmark is due
}

// faults are the current faults of the source.
type faults struct {
	down, silent           bool
	noWatchList, noVersion bool
	holdBookmarks          bool
	noTimeouts             bool
	fail                   map[string][]error // errors of the next calls, by method
}

// ErrDown is returned by all calls while the source is down.
var ErrDown = errors.New("cachetest: connection refused")

// Change is one write of one object.
type Change struct {
	// Type is Added, Modified or Deleted.
	Type api.EventType
	RV   uint64
	Key  string
	// Object is the state after the write; for a deletion the last one, with the version of the
	// deletion.
	Object Object
}

// New returns a source without objects, at revision 100.
func New(resources ...*source.Resource) *Source {
	s := new(Source)
	s.mu.rev = 100
	s.mu.server = "1"
	s.mu.resources = make(map[schema.GroupVersionResource]*resource)
	s.mu.streams = make(map[*stream]struct{})
	s.mu.changed = make(chan struct{})
	s.mu.faults.fail = make(map[string][]error)
	for _, r := range resources {
		s.mu.resources[r.GroupVersionResource] = newResource(r)
	}
	return s
}

// Revision returns the current revision.
func (s *Source) Revision() (rev uint64) {
	s.locked(func() { rev = s.mu.rev })
	return rev
}

// Bump advances the revision by n, like writes to other resources.
func (s *Source) Bump(n uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rev += n
	s.wakeLocked()
	return s.mu.rev
}

// Create writes a copy of obj and returns what was stored. It panics if the object exists. It sets
// uid (if empty), resourceVersion and creationTimestamp.
func (s *Source) Create(gvr schema.GroupVersionResource, obj Object) Object {
	obj = obj.DeepCopyObject().(Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetUID() == "" {
		s.mu.uids++
		obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.mu.uids)))
	}
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	return s.writeLocked(gvr, api.Added, keyOf(obj), func(Object) Object { return obj })
}

// Update replaces an object, keeps its uid and creationTimestamp, and returns what was stored. It
// panics if there is none.
func (s *Source) Update(gvr schema.GroupVersionResource, obj Object) Object {
	obj = obj.DeepCopyObject().(Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(gvr, api.Modified, keyOf(obj), func(old Object) Object {
		obj.SetUID(old.GetUID())
		obj.SetCreationTimestamp(old.GetCreationTimestamp())
		return obj
	})
}

// Delete deletes the object at key ("namespace/name" or "name") and returns its last state with the
// version of the deletion. It panics if there is none.
func (s *Source) Delete(gvr schema.GroupVersionResource, key string) Object {
	return s.DeleteTogether(gvr, key)[0]
}

// DeleteTogether deletes the objects at keys in one transaction, like an expiring etcd lease: all
// with the same version.
func (s *Source) DeleteTogether(gvr schema.GroupVersionResource, keys ...string) (last []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, key := range keys {
		if i > 0 {
			s.mu.rev--
		}
		last = append(last, s.writeLocked(gvr, api.Deleted, key, func(old Object) Object { return old.DeepCopyObject().(Object) }))
	}
	return last
}

// Objects returns the current objects in key order.
func (s *Source) Objects(gvr schema.GroupVersionResource) []Object {
	return s.ObjectsAt(gvr, s.Revision())
}

// ObjectsAt returns the objects at a revision, compacted or not, in key order.
func (s *Source) ObjectsAt(gvr schema.GroupVersionResource, rev uint64) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	objs := make([]Object, 0)
	for _, c := range s.resourceLocked(gvr).at(rev) {
		objs = append(objs, c.Object)
	}
	return objs
}

// History returns all writes to a resource, compacted or not, oldest first.
func (s *Source) History(gvr schema.GroupVersionResource) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resourceLocked(gvr).log)
}

func (s *Source) resourceLocked(gvr schema.GroupVersionResource) *resource {
	r, ok := s.mu.resources[gvr]
	if !ok {
		panic(fmt.Sprintf("cachetest: unknown resource %s", gvr))
	}
	return r
}

// writeLocked writes what change returns for the object that exists, nil for none. It panics if
// there is one to be added, or none to be modified or deleted.
func (s *Source) writeLocked(gvr schema.GroupVersionResource, kind api.EventType, key string, change func(old Object) Object) Object {
	r := s.resourceLocked(gvr)
	old, exists := r.live[key]
	if exists == (kind == api.Added) {
		panic(fmt.Sprintf("cachetest: %s: %s %s exists: %t", kind, gvr.Resource, key, exists))
	}
	obj := change(old.Object)
	s.mu.rev++
	obj.SetResourceVersion(fmt.Sprint(s.mu.rev))
	obj.GetObjectKind().SetGroupVersionKind(r.res.GroupVersion().WithKind(r.res.Kind))
	r.add(Change{Type: kind, RV: s.mu.rev, Key: key, Object: obj})
	s.wakeLocked()
	return obj
}

func (s *Source) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Source) wakeLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func newResource(res *source.Resource) *resource {
	return &resource{res: res, live: make(map[string]Change)}
}

func (r *resource) add(c Change) {
	r.log = append(r.log, c)
	if r.live[c.Key] = c; c.Type == api.Deleted {
		delete(r.live, c.Key)
	}
}

// until returns the history up to a revision.
func (r *resource) until(rev uint64) *resource {
	if n := len(r.log); n == 0 || r.log[n-1].RV <= rev {
		return r
	}
	past := newResource(r.res)
	for _, c := range r.log[:r.position(rev)] {
		past.add(c)
	}
	return past
}

// at returns the state at a revision in key order.
func (r *resource) at(rev uint64) []Change {
	return slices.SortedFunc(maps.Values(r.until(rev).live), func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
}

// position returns the number of changes up to a revision.
func (r *resource) position(rev uint64) int {
	i, _ := slices.BinarySearchFunc(r.log, rev+1, func(c Change, rev uint64) int { return cmp.Compare(c.RV, rev) })
	return i
}

func keyOf(obj Object) string {
	if ns := obj.GetNamespace(); ns != "" {
		return ns + "/" + obj.GetName()
	}
	return obj.GetName()
}

// enter begins a call: it records the call and applies the current faults.
func (s *Source) enter(ctx context.Context, method, call string) error {
	s.mu.Lock()
	s.mu.calls = append(s.mu.calls, call)
	errs := s.mu.faults.fail[method]
	s.mu.faults.fail[method] = errs[min(1, len(errs)):]
	s.mu.Unlock()
	if len(errs) > 0 {
		return errs[0]
	}
	return s.reach(ctx)
}

// reach blocks while the source is silent. It fails if it is down.
func (s *Source) reach(ctx context.Context) error {
	for {
		s.mu.Lock()
		down, silent, changed := s.mu.faults.down, s.mu.faults.silent, s.mu.changed
		s.mu.Unlock()
		switch {
		case down:
			return ErrDown
		case !silent:
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
