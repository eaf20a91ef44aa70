package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Options configure a Store.
type Options struct {
	// History bounds the events that are kept for late watchers and exact reads.
	History watchmux.Options
	// SnapshotAge bounds how long a snapshot is retained, SnapshotBytes how many bytes all of them
	// may keep from being freed.
	SnapshotAge   time.Duration
	SnapshotBytes int64
	// Indexes is the maximum number of indexes by label, field or name.
	Indexes int
	// Contents is the counter behind Snapshot.Content, shared by all stores of the process.
	Contents *atomic.Uint64
	// Spawn runs the building of an index on another goroutine, which the caller waits for.
	Spawn func(func())
	// Grown, if not nil, is called after each change with Churn. The caller of the change holds
	// publish meanwhile, so Grown must not change the store.
	Grown func(churn int64)
	// Stopped is closed when the collection has stopped; StopReason then returns why.
	Stopped    <-chan struct{}
	StopReason func() error
}

// Store is the state of one collection, and the only way into its Mux. There is one writer at a
// time, the holder of publish; readers take immutable snapshots. All methods are safe for
// concurrent use.
type Store struct {
	encoding api.Encoding
	mux      *watchmux.Mux
	waits    waits
	retain   retained
	Options

	// publish is held from before a change of the state until the mux has the change, too: whoever
	// holds it sees both at the same version. It is taken before mu.
	publish sync.Mutex

	// mu guards the state. It is held only as long as a change takes. Readers take it after a
	// change, to copy the tree.
	mu struct {
		sync.Mutex
		tree *Tree
		copy *Tree // of tree, shared by snapshots; nil after a change
		rv   uint64
		// completeRV is the version up to which no change is missing. It is rv, or lower while more
		// changes of rv may follow, that is, until a change of a higher version or a bookmark
		// arrives.
		completeRV uint64
		partial    partialVersion
		content    uint64 // of copy
		bytes      int64
		churn      int64 // see Snapshot.Churn
		recoded    int   // counts replacements without an event, see diff
		indexes    indexes
		closed     bool
	}
	// view is the current snapshot, or nil from a change until the next read. rv is mu.rv. It is
	// set after view was cleared, so whoever loads a version here finds it in the snapshot as well.
	view atomic.Pointer[Snapshot]
	rv   atomic.Uint64
	// ahead is the state at a version above rv, see ahead.go. Most of the time it is nil, or at rv
	// or below.
	ahead atomic.Pointer[Snapshot]
}

// New returns an empty store of objects in the encoding enc.
func New(enc api.Encoding, o Options) *Store {
	s := &Store{encoding: enc, mux: watchmux.New(o.History), Options: o}
	s.waits.init()
	s.retain.init(o.SnapshotAge, o.SnapshotBytes)
	s.mu.tree = NewTree()
	s.mu.indexes = indexes{max: o.Indexes, byKey: make(map[indexKey]*index)}
	return s
}

// grown is called after each change.
func (s *Store) grown(churn int64) {
	s.retain.grown(churn)
	if s.Grown != nil {
		s.Grown(churn)
	}
}

// Mux returns the multiplexer of the store's events.
func (s *Store) Mux() *watchmux.Mux { return s.mux }

// AppliedRV returns the version up to which events have been applied.
func (s *Store) AppliedRV() uint64 { return s.rv.Load() }

// Current returns the snapshot at AppliedRV.
func (s *Store) Current() *Snapshot {
	if v := s.view.Load(); v != nil {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked()
}

func (s *Store) currentLocked() *Snapshot {
	if v := s.view.Load(); v != nil {
		return v
	}
	if s.mu.copy == nil {
		s.mu.copy = s.mu.tree.Copy()
		s.mu.content = s.Contents.Add(1)
	}
	v := &Snapshot{rv: s.mu.rv, content: s.mu.content, bytes: s.mu.bytes, churn: s.mu.churn, tree: s.mu.copy}
	v.mark = Mark{true, s.mux.Position(), s.mu.recoded}
	for key, x := range s.mu.indexes.shards {
		v.shards[key] = x.snapshot()
	}
	s.view.Store(v)
	return v
}

// List is the complete state of a resource at one version: all initial events up to the bookmark
// that ends them, or all pages of one version.
type List struct {
	Tree *Tree
	RV   uint64
	// CompleteRV is the version up to which no change is missing, if that is not RV; else 0.
	CompleteRV uint64
}

// Install makes list the state and takes over its tree. It is called once, before any other change.
func (s *Store) Install(list *List) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.tree = list.Tree
	s.mu.tree.Scan(func(o *object.Object) bool {
		s.mu.bytes += int64(len(o.Raw))
		return true
	})
	s.advanceLocked(list.RV, true)
	s.mu.completeRV = cmp.Or(list.CompleteRV, list.RV)
	s.mu.Unlock()
	s.mux.Start(list.RV)
	s.waits.reached(list.RV)
}

// advanceLocked finishes a change: the state is now at rv.
func (s *Store) advanceLocked(rv uint64, changed bool) {
	s.mu.rv = rv
	if changed {
		s.mu.copy = nil
	}
	s.view.Store(nil)
	s.rv.Store(rv)
}

// ErrOutOfOrder means that an event or list of the source cannot follow the state that is held.
var ErrOutOfOrder = errors.New("event out of order")

// Apply applies one event of the source. It ignores an event that the state already contains, and
// returns ErrOutOfOrder for any other event below AppliedRV. An event at AppliedRV is applied,
// because several changes may share a version.
func (s *Store) Apply(kind api.EventType, o *object.Object) error {
	s.publish.Lock()
	defer s.publish.Unlock()
	ev, churn, err := s.applied(kind, o)
	if err != nil || churn < 0 {
		return err
	}
	if ev != nil {
		s.mux.Append(ev)
	} else {
		s.mux.Progress(o.RV)
	}
	s.grown(churn)
	s.waits.reached(o.RV)
	if ev != nil && ev.Prev != nil {
		s.waits.changed(ev.Prev.Key)
	}
	return nil
}

// applied changes the state for Apply. The event is nil if the state has not changed; churn is
// negative if the store is closed or already contains the event.
func (s *Store) applied(kind api.EventType, o *object.Object) (ev *watchmux.Event, churn int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, -1, nil
	}
	if o.RV <= s.mu.rv {
		known, fits := s.knownLocked(kind, o)
		switch {
		case known:
			return nil, -1, nil
		case !fits:
			return nil, -1, ErrOutOfOrder
		}
		s.markPartialLocked()
	} else {
		s.mu.completeRV = max(s.mu.completeRV, o.RV-1)
	}
	ev = s.changeLocked(kind, o)
	s.advanceLocked(o.RV, ev != nil)
	return ev, s.mu.churn, nil
}

// knownLocked reports whether the state contains an event at or below its version and, if not,
// whether the event is another change of that version.
func (s *Store) knownLocked(kind api.EventType, o *object.Object) (known, fits bool) {
	held, ok := s.mu.tree.Get(o)
	if kind == api.Deleted {
		return !ok || held.RV > o.RV, o.RV == s.mu.rv && ok && held.RV < o.RV
	}
	return ok && held.RV >= o.RV, o.RV == s.mu.rv
}

// partialVersion describes the last version of which a snapshot may have been taken before all
// changes of that version had arrived. Such snapshots have a content of at most content.
type partialVersion struct{ rv, content uint64 }

// markPartialLocked is called before another change of the current version is applied.
func (s *Store) markPartialLocked() {
	s.mu.partial = partialVersion{s.mu.rv, s.Contents.Load()}
	s.retain.remove(s.mu.rv)
}

// Retain keeps v for At, within the bounds of age and bytes. It ignores a snapshot that is missing
// changes of its version, so that the next reader of that version gets all of them.
func (s *Store) Retain(v *Snapshot, now time.Time) {
	if v.rv > s.rv.Load() {
		return // the ahead snapshot; the history reaches it later
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.rv != s.mu.partial.rv || v.content > s.mu.partial.content {
		s.retain.put(v, s.mu.rv, now)
	}
}

// ResumeRV returns the version from which the source's watch has to be resumed: AppliedRV, or one
// less while changes of AppliedRV may be missing. The watch then repeats the others, which Apply
// ignores.
func (s *Store) ResumeRV() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.completeRV >= s.mu.rv {
		return s.mu.rv
	}
	return max(1, s.mu.rv-1) // 0 would mean any version
}

// IsComplete reports whether no change up to rv is missing.
func (s *Store) IsComplete(rv uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rv <= s.mu.completeRV
}

// changeLocked changes the tree and the indexes. It returns the event to send, or nil if nothing
// has changed because the deleted object was unknown. The event's type says what happened to this
// state, whatever type the source's event had.
func (s *Store) changeLocked(kind api.EventType, o *object.Object) *watchmux.Event {
	ev := &watchmux.Event{Type: kind, RV: o.RV, Object: o}
	if kind == api.Deleted {
		if ev.Prev, _ = s.mu.tree.Delete(o); ev.Prev == nil {
			return nil
		}
		s.replacedLocked(ev.Prev, nil)
		return ev
	}
	if ev.Prev, _ = s.mu.tree.Set(o); ev.Prev == nil {
		ev.Type = api.Added
	} else {
		ev.Type = api.Modified
	}
	s.replacedLocked(ev.Prev, o)
	return ev
}

// replacedLocked updates sizes and indexes after next has replaced prev. Either may be nil.
func (s *Store) replacedLocked(prev, next *object.Object) {
	s.mu.churn += nodeCost
	if prev != nil {
		s.mu.bytes -= int64(len(prev.Raw))
		s.mu.churn += int64(len(prev.Raw))
	}
	if next != nil {
		s.mu.bytes += int64(len(next.Raw))
	}
	for x := range s.mu.indexes.all() {
		x.replaced(prev, next)
	}
	for _, x := range s.mu.indexes.shards {
		if x != nil && x.built { // snapshots have copies of it
			s.mu.churn += nodeCost
		}
	}
}

// Churn returns the Snapshot.Churn that a new snapshot would have.
func (s *Store) Churn() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.churn
}

// Progress records that the state is complete up to rv, as a bookmark says.
func (s *Store) Progress(rv uint64) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	s.mu.completeRV = max(s.mu.completeRV, rv)
	if s.mu.closed || rv <= s.mu.rv {
		s.mu.Unlock()
		s.waits.reached(rv) // WaitForComplete
		return
	}
	s.advanceLocked(rv, false)
	s.mu.Unlock()
	s.mux.Progress(rv)
	s.waits.reached(rv)
}

// Close ends the watchers with reason and drops the indexes and retained snapshots. Later changes
// are ignored.
func (s *Store) Close(reason error) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	closed := s.mu.closed
	s.mu.closed = true
	s.mu.indexes = indexes{}
	s.mu.Unlock()
	s.retain.drop()
	if !closed {
		s.mux.Close(reason)
	}
}

// DropUnused drops old snapshots, and the indexes that nobody has used for a while.
func (s *Store) DropUnused(now time.Time) {
	if held := s.ahead.Load(); held != nil && held.rv <= s.rv.Load() {
		s.ahead.CompareAndSwap(held, nil)
	}
	s.retain.expire(now, s.AppliedRV())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.indexes.expire(now)
	s.view.Store(nil) // which may refer to a dropped index
}

// Sizes are the figures of a store for metrics and status.
type Sizes struct {
	// SnapshotBytes is an upper bound of what the retained snapshots keep from being freed.
	Objects, Indexes, Snapshots int
	Bytes, SnapshotBytes, Churn int64
}

// Sizes returns the current figures.
func (s *Store) Sizes() Sizes {
	s.mu.Lock()
	z := Sizes{Objects: s.mu.tree.Len(), Bytes: s.mu.bytes, Churn: s.mu.churn}
	for x := range s.mu.indexes.all() {
		if x.built {
			z.Indexes++
		}
	}
	s.mu.Unlock()
	z.Snapshots, z.SnapshotBytes = s.retain.size(z.Churn)
	return z
}

// CheckInvariants recomputes everything that the store derives from its objects and describes the
// first difference; it returns "" if there is none. It is for tests.
func (s *Store) CheckInvariants() string {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	s.mu.tree.Scan(func(o *object.Object) bool {
		bytes += int64(len(o.Raw))
		return true
	})
	if bytes != s.mu.bytes {
		return fmt.Sprintf("%d bytes counted, %d held", s.mu.bytes, bytes)
	}
	if s.mux.RV() != s.mu.rv || s.rv.Load() != s.mu.rv {
		return fmt.Sprintf("versions differ: mux %d, store %d, rv %d", s.mux.RV(), s.mu.rv, s.rv.Load())
	}
	v := s.currentLocked()
	for x := range s.mu.indexes.all() {
		if x.built && !slices.Equal(x.tree.Items(), x.build(v).Items()) {
			return fmt.Sprintf("an index of %d objects is not that of the current state", x.tree.Len())
		}
	}
	for key, x := range s.mu.indexes.shards {
		if x != nil && x.built && !slices.Equal(x.tree.Items(), v.shards[key].Items()) {
			return fmt.Sprintf("the index of shards %d differs from that of the snapshot", key)
		}
	}
	return ""
}

// ErrRewound means that the upstream's resourceVersion went back, for example because etcd was
// restored or because it is another cluster. Nothing that was held is valid.
var ErrRewound = errors.New("the upstream's resourceVersion went back")

// ErrSuspect means that the upstream's resourceVersion may have gone back. The reflector finds out.
var ErrSuspect = errors.New("the upstream's resourceVersion may have gone back")

// ExpiredError means that the state at a version is no longer held.
type ExpiredError struct {
	// RV is the requested version, Oldest the oldest version that the history reaches.
	RV, Oldest uint64
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("resource version %d is too old (oldest held: %d)", e.RV, e.Oldest)
}

// TooLargeError means that a requested version is above Current, the version that is held.
type TooLargeError struct{ RV, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("too large resource version: %d, current: %d", e.RV, e.Current)
}

// IsTooLarge reports whether err is, or wraps, a *TooLargeError.
func IsTooLarge(err error) bool {
	var tooLarge *TooLargeError
	return errors.As(err, &tooLarge)
}

// ErrStopped means that a collection stopped while a caller waited for it.
var ErrStopped = errors.New("the collection stopped")

// Reasons why a collection stops, beside ErrRewound. They are also the errors with which its
// watchers end.
var (
	// ErrIdle means that nobody used the collection.
	ErrIdle = errors.New("idle")
	// ErrManagerClosed means that the Manager was closed.
	ErrManagerClosed = errors.New("the cache is shutting down")
	// ErrDiffers means that the collection was found to differ from the upstream.
	ErrDiffers = errors.New("the collection differed from the upstream")
	// ErrDropped means that the collection was dropped, see Manager.Drop.
	ErrDropped = errors.New("dropped")
)
