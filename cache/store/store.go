package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Tree is an ordered copy-on-write tree of objects. Copies share nodes, so
// a copy costs nothing; the writer then copies the nodes on its way to what it
// changes, once per copy taken.
type Tree = btree.BTreeG[*object.Object]

// NewTree returns an empty tree in the order of keys.
func NewTree() *Tree { return newTreeBy(byKey) }

func newTreeBy(less func(a, b *object.Object) bool) *Tree {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func byKey(a, b *object.Object) bool { return a.Key < b.Key }

// nodeCost is what one change costs in copied tree nodes when a view of the
// state before it is kept: a leaf and two inner nodes at a degree of 32.
const nodeCost = 2 << 10

// Options configure a store.
type Options struct {
	// History bounds the events that are kept.
	History watchmux.Options
	// SnapshotAge and SnapshotBytes bound the retained views.
	SnapshotAge   time.Duration
	SnapshotBytes int64
	// Indexes is how many labels and fields are indexed at most.
	Indexes int
	// Contents counts the values of View.Content, which are unique within the process.
	Contents *atomic.Uint64
	// Spawn runs a function that builds an index on another goroutine, which has an owner.
	Spawn func(func())
	// Grown is called after a change with the View.churn that a view would have now. Whoever
	// changes the store holds publish then. Nil for nobody.
	Grown func(churn int64)
	// Stopped is closed when the collection stops for good, and StopReason then says why.
	Stopped    <-chan struct{}
	StopReason func() error
}

// Store is the state of a collection and the only way into its mux. There is
// one writer at a time, the holder of publish: the feed, or a proof that the
// version has moved on. Readers take immutable views.
type Store struct {
	encoding api.Encoding
	mux      *watchmux.Mux
	waits    waits
	retain   retained
	pivots   pivots
	Options

	// publish is held from before a change of the state until the mux has it
	// too: who holds it sees both at the same version. It is taken before mu.
	publish sync.Mutex

	// mu guards the state. It is held for no longer than a change takes; readers
	// take it to copy a tree, which is O(1), when there was a change since the
	// last copy.
	mu struct {
		sync.Mutex
		tree *Tree
		copy *Tree // of tree, shared by views; nil after a change
		rv   uint64
		// marked is the version up to which nothing is missing: rv, but below it while
		// more changes of rv may follow, which is as long as nothing but changes of that
		// version has come.
		marked  uint64
		torn    torn
		content uint64 // of copy
		bytes   int64
		churn   int64 // see View.churn
		recoded int   // how often objects were replaced of which no event tells, see diff
		gaps    []gap // rising
		indexes indexes
		shards  shardIndexes
		closed  bool
	}
	// view is the current view, nil from a change until a reader asks. rv is
	// mu.rv; it is set after view was cleared, so whoever sees a version here
	// finds it in the view too.
	view atomic.Pointer[View]
	rv   atomic.Uint64
	// ahead is the state at a version that the store has not come to yet, see hold; nil,
	// or not above the store's version, most of the time.
	ahead atomic.Pointer[View]
}

// gap is what a relist jumped over: the versions between from and to,
// exclusive. What was true at them is not known exactly, because the versions of
// deletions are not (see diff).
type gap struct{ from, to uint64 }

func New(enc api.Encoding, o Options) *Store {
	s := &Store{encoding: enc, mux: watchmux.New(o.History), Options: o}
	s.waits.init()
	s.retain.init(o.SnapshotAge, o.SnapshotBytes)
	s.mu.tree = NewTree()
	s.mu.indexes.max = o.Indexes
	return s
}

// grown is called after each change.
func (s *Store) grown(churn int64) {
	s.retain.grown(churn)
	if s.Grown != nil {
		s.Grown(churn)
	}
}

// Mux fans out the events of the store.
func (s *Store) Mux() *watchmux.Mux { return s.mux }

// AppliedRV is the version that the store has come to.
func (s *Store) AppliedRV() uint64 { return s.rv.Load() }

// Current returns the current view.
func (s *Store) Current() *View {
	if v := s.view.Load(); v != nil {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked()
}

func (s *Store) currentLocked() *View {
	if v := s.view.Load(); v != nil {
		return v
	}
	if s.mu.copy == nil {
		s.mu.copy = s.mu.tree.Copy()
		s.mu.content = s.Contents.Add(1)
	}
	v := &View{rv: s.mu.rv, content: s.mu.content, bytes: s.mu.bytes, churn: s.mu.churn, tree: s.mu.copy, pivots: &s.pivots}
	v.mark = Mark{true, s.mux.Position(), s.mu.recoded}
	v.shards = s.mu.shards.snapshots()
	s.view.Store(v)
	return v
}

// List is the state of a resource at one version, of which nothing is missing:
// all events up to the bookmark that ends a streaming list, or all pages of one
// version.
type List struct {
	Tree *Tree
	RV   uint64
	// CompleteRV is the version up to which nothing is missing, if that is not rv.
	CompleteRV uint64
}

// Install makes a list, whose tree it takes over, the state. It is called once, before
// anything else.
func (s *Store) Install(list *List) {
	tree, rv := list.Tree, list.RV
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.tree = tree
	tree.Scan(func(o *object.Object) bool {
		s.mu.bytes += int64(len(o.Raw))
		return true
	})
	s.advanceLocked(rv, true)
	if s.mu.marked = rv; list.CompleteRV > 0 {
		s.mu.marked = list.CompleteRV
	}
	s.mu.Unlock()
	s.mux.Start(rv)
	s.waits.reached(rv)
}

// advanceLocked ends a change of the state, which is at rv now.
func (s *Store) advanceLocked(rv uint64, changed bool) {
	s.mu.rv = rv
	if changed {
		s.mu.copy = nil
	}
	s.view.Store(nil)
	s.rv.Store(rv)
}

// ErrOutOfOrder says that an event of the source cannot follow what is held.
var ErrOutOfOrder = errors.New("event out of order")

// Apply enters one event of the source. An event that the store has already is
// ignored; errOrder is returned for one below its version that it has not. Several
// changes may have one version, so one at the store's version is entered.
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
		s.waits.gone(ev.Prev.Key)
	}
	return nil
}

// applied is apply for the state alone. The event is nil when nothing changed, churn
// below 0 when the store is closed or knew the event.
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
		s.tearLocked()
	} else {
		s.mu.marked = max(s.mu.marked, o.RV-1)
	}
	ev = s.changeLocked(kind, o)
	s.advanceLocked(o.RV, ev != nil)
	return ev, s.mu.churn, nil
}

// knownLocked reports whether an event at or below the store's version is one that
// it contains; if not, whether it fits: it is another change of the store's version.
func (s *Store) knownLocked(kind api.EventType, o *object.Object) (known, fits bool) {
	held, ok := s.mu.tree.Get(o)
	if kind == api.Deleted {
		return !ok || held.RV > o.RV, o.RV == s.mu.rv && ok && held.RV < o.RV
	}
	return ok && held.RV >= o.RV, o.RV == s.mu.rv
}

// torn is the last version of which a view was, or could have been, taken before all
// its changes had come: one whose content is not above content.
type torn struct{ rv, content uint64 }

// tearLocked is called before another change of the store's version is entered.
func (s *Store) tearLocked() {
	s.mu.torn = torn{s.mu.rv, s.Contents.Load()}
	s.retain.remove(s.mu.rv)
}

// Retain is Collection.Retain. The state of a version that is not whole is not kept: who
// asks for it again gets the whole.
func (s *Store) Retain(v *View, now time.Time) {
	if v.rv > s.rv.Load() {
		return // it is kept anyway, until history reaches it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.rv != s.mu.torn.rv || v.content > s.mu.torn.content {
		s.retain.put(v, now)
	}
}

// ResumeRV is the version from which a watch of the source goes on: the store's, but one
// below while changes of that version may be missing. Those it has come again then.
func (s *Store) ResumeRV() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumeLocked()
}

func (s *Store) resumeLocked() uint64 {
	if s.mu.marked >= s.mu.rv {
		return s.mu.rv
	}
	return max(1, s.mu.rv-1) // 0 would be any
}

// IsComplete reports whether no change up to rv is missing.
func (s *Store) IsComplete(rv uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rv <= s.mu.marked
}

// changeLocked changes the tree and the indexes and returns the event to be
// sent, nil when nothing changed (an object was deleted that was never seen).
// The type of the event is that of what happened here, whatever the source
// called it.
func (s *Store) changeLocked(kind api.EventType, o *object.Object) *watchmux.Event {
	var prev *object.Object
	if kind == api.Deleted {
		var ok bool
		if prev, ok = s.mu.tree.Delete(o); !ok {
			return nil
		}
		s.replacedLocked(prev, nil)
		return &watchmux.Event{Type: api.Deleted, RV: o.RV, Object: o, Prev: prev}
	}
	prev, replaced := s.mu.tree.Set(o)
	if !replaced {
		s.replacedLocked(nil, o)
		return &watchmux.Event{Type: api.Added, RV: o.RV, Object: o}
	}
	s.replacedLocked(prev, o)
	return &watchmux.Event{Type: api.Modified, RV: o.RV, Object: o, Prev: prev}
}

// replacedLocked keeps the books after prev (nil: none) gave way to next.
func (s *Store) replacedLocked(prev, next *object.Object) {
	s.mu.churn += nodeCost * int64(1+s.mu.shards.built())
	if prev != nil {
		s.mu.bytes -= int64(len(prev.Raw))
		s.mu.churn += int64(len(prev.Raw))
	}
	if next != nil {
		s.mu.bytes += int64(len(next.Raw))
	}
	s.mu.indexes.replaced(prev, next)
	s.mu.shards.replaced(prev, next)
}

// Churn is the View.churn that a view would have now.
func (s *Store) Churn() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.churn
}

// Progress says that nothing happened up to rv but what the store holds.
func (s *Store) Progress(rv uint64) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	s.mu.marked = max(s.mu.marked, rv)
	if s.mu.closed || rv <= s.mu.rv {
		s.mu.Unlock()
		s.waits.reached(rv) // who waits for all of it
		return
	}
	s.advanceLocked(rv, false)
	s.mu.Unlock()
	s.mux.Progress(rv)
	s.waits.reached(rv)
}

// Close ends the mux's watchers with reason; later changes are ignored.
func (s *Store) Close(reason error) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	closed := s.mu.closed
	s.mu.closed = true
	s.mu.indexes.drop()
	s.mu.shards = shardIndexes{}
	s.mu.Unlock()
	s.retain.drop()
	if !closed {
		s.mux.Close(reason)
	}
}

// DropUnused drops what has been unused for long.
func (s *Store) DropUnused(now time.Time) {
	s.dropAhead()
	s.retain.expire(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.indexes.expire(now)
	if s.mu.shards.expire(now) {
		s.view.Store(nil) // has them
	}
}

// Sizes are the figures of the metrics.
type Sizes struct {
	Objects, Indexes, Snapshots int
	Bytes, SnapshotBytes, Churn int64
}

func (s *Store) Sizes() Sizes {
	s.mu.Lock()
	z := Sizes{Objects: s.mu.tree.Len(), Bytes: s.mu.bytes, Indexes: s.mu.indexes.built() + s.mu.shards.built()}
	z.Churn = s.mu.churn
	s.mu.Unlock()
	z.Snapshots, z.SnapshotBytes = s.retain.size(z.Churn)
	return z
}
