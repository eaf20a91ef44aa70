package store

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// Snapshot is the state of a collection at one version. It is immutable and safe for concurrent
// use. Holding one keeps only those objects in memory that the collection has replaced since.
type Snapshot struct {
	rv      uint64
	content uint64
	bytes   int64
	churn   int64 // see Churn
	tree    *Tree
	mark    Mark
	// shards are the objects in the order of their hashes, nil without an index of those.
	shards [shard.Keys]*Tree
}

// Mark is the place of a snapshot among the events of its store, see Store.ChangedSince. Snapshots
// made by undoing history have none.
type Mark struct {
	// IsKnown is true if the snapshot has a place.
	IsKnown bool
	// position is the end of a range of events, all of which the snapshot includes. recoded is that
	// of the store when the snapshot was taken.
	position uint64
	recoded  int
}

// RV returns the snapshot's version: it includes every write up to it, and none above.
func (v *Snapshot) RV() uint64 { return v.rv }

// Content identifies the objects of the snapshot. Two snapshots of one collection with the same
// Content hold the same objects, even if their versions differ because of writes to other
// resources. It can be the cache key of data derived only from the objects. It is unique within the
// process.
func (v *Snapshot) Content() uint64 { return v.content }

// Churn returns how many bytes of objects and tree nodes the collection had replaced when the
// snapshot was taken, counted since the collection began. Two snapshots together keep at most the
// difference of their Churn from being freed.
func (v *Snapshot) Churn() int64 { return v.churn }

// Mark returns the snapshot's place among the events of its store.
func (v *Snapshot) Mark() Mark { return v.mark }

// Len returns the number of objects.
func (v *Snapshot) Len() int { return v.tree.Len() }

// Bytes returns the sum of the lengths of all objects' Raw.
func (v *Snapshot) Bytes() int64 { return v.bytes }

// Get returns the object with the key ("namespace/name", or "name" if cluster-scoped), or nil.
func (v *Snapshot) Get(key string) *object.Object {
	p := pivots.Get().(*object.Object)
	p.Key = key
	o, _ := v.tree.Get(p)
	p.Key = ""
	pivots.Put(p)
	return o
}

// pivots are objects that have only a key. A tree compares objects, so a lookup needs one, which
// would be its only allocation.
var pivots = sync.Pool{New: func() any { return new(object.Object) }}

// Ascend calls visit for each object of namespace ("" for all) whose key is at least fromKey, in
// bytewise order of the keys, until visit returns false.
func (v *Snapshot) Ascend(namespace, fromKey string, visit func(*object.Object) bool) {
	switch {
	case namespace != "":
		v.ascendPrefix(namespace+"/", fromKey, visit)
	case fromKey != "":
		v.tree.Ascend(&object.Object{Key: fromKey}, visit)
	default:
		v.tree.Scan(visit)
	}
}

// ascendPrefix calls visit for each object whose key has the prefix and is at least fromKey, until
// visit returns false.
func (v *Snapshot) ascendPrefix(prefix, fromKey string, visit func(*object.Object) bool) {
	p := pivots.Get().(*object.Object)
	p.Key = max(prefix, fromKey)
	v.tree.Ascend(p, func(o *object.Object) bool {
		return strings.HasPrefix(o.Key, prefix) && visit(o)
	})
	p.Key = ""
	pivots.Put(p)
}

// CountFrom returns the number of objects that Ascend would visit, in O(log n).
func (v *Snapshot) CountFrom(namespace, fromKey string) int {
	if namespace == "" {
		if fromKey == "" {
			return v.tree.Len()
		}
		return v.tree.Len() - v.rank(fromKey)
	}
	prefix := namespace + "/"
	end := v.rank(namespace + "0") // "0" follows "/"
	return max(0, end-v.rank(max(prefix, fromKey)))
}

// rank returns the number of objects whose keys are below key.
func (v *Snapshot) rank(key string) int {
	return position(v.tree, func(o *object.Object) bool { return o.Key >= key })
}

// At returns the object at position i in key order, from 0 on.
func (v *Snapshot) At(i int) *object.Object {
	o, _ := v.tree.GetAt(i)
	return o
}

// Each calls visit for all objects in key order. It stops at the first error and returns it.
func (v *Snapshot) Each(visit func(*object.Object) error) (err error) {
	v.tree.Scan(func(o *object.Object) bool {
		err = visit(o)
		return err == nil
	})
	return err
}

// ChangesSince compares v with an earlier snapshot, object by object in key order. It calls visit
// for each object that is new (was is nil), has changed or is gone (is is nil). It stops at the
// first error and returns it.
func (v *Snapshot) ChangesSince(earlier *Snapshot, visit func(was, is *object.Object) error) error {
	old := earlier.tree.Iter()
	defer old.Release()
	more := old.First()
	next := func() *object.Object {
		o := old.Item()
		more = old.Next()
		return o
	}
	err := v.Each(func(o *object.Object) error {
		for more && old.Item().Key < o.Key {
			if err := visit(next(), nil); err != nil {
				return err
			}
		}
		var was *object.Object
		if more && old.Item().Key == o.Key {
			was = next()
		}
		if was == o {
			return nil
		}
		return visit(was, o)
	})
	for more && err == nil {
		err = visit(next(), nil)
	}
	return err
}

// PageToken returns the continue token of a page at the version at that begins with the object key,
// which v holds. Like the tokens of kube-apiserver, it names the key before it: stores other than
// etcd drop the zero byte at the end of a token's key and never begin with the key itself.
func (v *Snapshot) PageToken(at uint64, key string) api.ContinueToken {
	before := key[:len(key)-1] // no key, or it is found below
	v.tree.Descend(&object.Object{Key: key}, func(o *object.Object) bool {
		if o.Key < key {
			before = o.Key
		}
		return o.Key >= key
	})
	if before = strings.TrimSuffix(before, "/"); before == "" {
		return api.ContinueToken{ResourceVersion: int64(at), Start: key}
	}
	return api.ContinueToken{ResourceVersion: int64(at), Start: before + "\x00"}
}

// NewestUpTo returns the object with the highest version of at most upTo, or nil.
func (v *Snapshot) NewestUpTo(upTo uint64) (newest *object.Object) {
	v.Ascend("", "", func(o *object.Object) bool {
		if o.RV <= upTo && (newest == nil || o.RV > newest.RV) {
			newest = o
		}
		return true
	})
	return newest
}

// AscendNamespaces calls visit for each object in the namespaces of f.Within whose key is at least
// from, in key order, until visit returns false. If the field selector names one of the namespaces,
// it visits only that one.
func (v *Snapshot) AscendNamespaces(f *object.Filter, from string, visit func(*object.Object) bool) {
	keys := f.Within.Keys
	if f.Fields != nil && !f.Within.Themselves {
		if only, ok := f.Fields.RequiresExactMatch("metadata.namespace"); ok {
			if !f.Within.Has(only) {
				return
			}
			keys = []string{only + "/"}
		}
	}
	first, found := slices.BinarySearch(keys, from)
	if !found && first > 0 && !f.Within.Themselves && strings.HasPrefix(from, keys[first-1]) {
		first-- // from is inside that namespace
	}
	more := true
	for _, key := range keys[first:] {
		if f.Within.Themselves {
			if o := v.Get(key); o != nil {
				more = visit(o)
			}
		} else {
			v.ascendPrefix(key, from, func(o *object.Object) bool {
				more = visit(o)
				return more
			})
		}
		if !more {
			return
		}
	}
}

// Selection is objects of a snapshot in key order: Objects if IsPicked, otherwise the first N
// objects of Namespace ("" for all) whose keys are at least From.
type Selection struct {
	Snapshot        *Snapshot
	IsPicked        bool
	Objects         []*object.Object
	Namespace, From string
	N               int
}

// Len returns the number of objects.
func (s *Selection) Len() int {
	if s.IsPicked {
		return len(s.Objects)
	}
	return s.N
}

// Bytes returns the approximate size of the objects, from the average of the snapshot.
func (s *Selection) Bytes() int64 {
	return s.Snapshot.Bytes() / int64(max(1, s.Snapshot.Len())) * int64(s.Len())
}

// Each calls visit for each object with its position until visit returns false.
func (s *Selection) Each(visit func(i int, o *object.Object) bool) {
	if s.IsPicked {
		for i, o := range s.Objects {
			if !visit(i, o) {
				return
			}
		}
		return
	}
	if s.N == 0 {
		return
	}
	i := 0
	s.Snapshot.Ascend(s.Namespace, s.From, func(o *object.Object) bool {
		more := visit(i, o)
		i++
		return more && i < s.N
	})
}

// Cancellation stops a scan of many objects soon after the client has left. The cost of a scan is
// chosen by clients: by the size of a collection and by their selectors. It belongs to one
// goroutine.
type Cancellation struct {
	Context context.Context // of the request
	Seen    bool
	visited int
}

// cancellationInterval is how many objects are visited between two looks at the context.
const cancellationInterval = 512

// Requested is called for each object and reports whether the scan must stop. Once it has, Seen is
// true.
func (c *Cancellation) Requested() bool {
	if c.visited++; c.visited%cancellationInterval == 0 && c.Context.Err() != nil {
		c.Seen = true
	}
	return c.Seen
}

// Collect returns a function that a scan calls for each object. It appends to objs those that
// match, and returns false when the scan must stop.
func (c *Cancellation) Collect(objs *[]*object.Object, matches func(*object.Object) bool) func(*object.Object) bool {
	return func(o *object.Object) bool {
		if c.Requested() {
			return false
		}
		if matches(o) {
			*objs = append(*objs, o)
		}
		return true
	}
}

// Tree is an ordered copy-on-write tree of objects. Copying a tree is O(1), because copies share
// nodes; the writer then copies each node that it changes, once per copy taken.
type Tree = btree.BTreeG[*object.Object]

// NewTree returns an empty tree that is ordered by Object.Key.
func NewTree() *Tree { return newTreeBy(byKey) }

func newTreeBy(less func(a, b *object.Object) bool) *Tree {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func byKey(a, b *object.Object) bool { return a.Key < b.Key }

// nodeCost estimates the bytes of the tree nodes that one change copies while an older snapshot is
// held: a leaf and two inner nodes, with a degree of 32.
const nodeCost = 2 << 10

// position returns the number of objects before the first one for which reached returns true.
func position(tree *Tree, reached func(*object.Object) bool) int {
	return sort.Search(tree.Len(), func(i int) bool {
		o, _ := tree.GetAt(i)
		return reached(o)
	})
}
