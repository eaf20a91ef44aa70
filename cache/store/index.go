package store

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// index is a tree of the objects that have a value for one label, one selectable field, a name or a
// shard hash, ordered by (value, key). The objects of one value are a range of it in key order, and
// so are those of one value in one namespace; the size of a range takes O(log n). It holds pointers
// only, about 12 bytes per object. Readers use copies of it, as of the main tree.
type index struct {
	order
	tree *Tree
	copy *Tree // shared by readers, nil after a change
	// pending are the changes during the building of the tree; nil otherwise.
	pending []replacement
	built   bool
	used    time.Time
}

type replacement struct{ prev, next *object.Object }

// order is a valueOf of any type.
type order interface {
	build(v *Snapshot) *Tree
	replace(tree *Tree, prev, next *object.Object) (changed bool)
}

// valueOf returns the indexed value of an object, or false if the object has none.
type valueOf[V cmp.Ordered] func(*object.Object) (V, bool)

// valueOfTerm returns the values that a term is about.
func valueOfTerm(term *object.Equality) valueOf[string] {
	switch key, field := term.Key, term.Field; term.Kind {
	case object.LabelTerm:
		return func(o *object.Object) (string, bool) { return o.Labels.Lookup(key) }
	case object.FieldTerm:
		return func(o *object.Object) (string, bool) {
			if field >= len(o.Fields) {
				return "", false
			}
			return o.Fields[field], true
		}
	default:
		return func(o *object.Object) (string, bool) { return o.Name, true }
	}
}

// hashBy returns the hashes of the objects' uids or namespaces.
func hashBy(key shard.Key) valueOf[uint64] {
	return func(o *object.Object) (uint64, bool) { return o.ShardHash(key), true }
}

// build returns the tree of the objects of v.
func (value valueOf[V]) build(v *Snapshot) *Tree {
	type entry struct {
		value V
		o     *object.Object
	}
	entries := make([]entry, 0, v.Len())
	v.tree.Scan(func(o *object.Object) bool {
		if value, ok := value(o); ok {
			entries = append(entries, entry{value, o})
		}
		return true
	})
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.value, b.value) })
	tree := newTreeBy(func(a, b *object.Object) bool {
		va, _ := value(a)
		vb, _ := value(b)
		return va < vb || va == vb && a.Key < b.Key
	})
	for _, e := range entries {
		tree.Load(e.o) // in this order it fills the nodes of the tree
	}
	return tree
}

// replace replaces prev by next. Either may be nil.
func (value valueOf[V]) replace(tree *Tree, prev, next *object.Object) (changed bool) {
	var before, after V
	var had, has bool
	if prev != nil {
		before, had = value(prev)
	}
	if next != nil {
		after, has = value(next)
	}
	if had && (!has || before != after) {
		tree.Delete(prev)
	}
	if has {
		tree.Set(next)
	}
	return had || has
}

// find returns the range of the objects with values from first to last. If namespace is not "",
// these must be one value, and the range is that of the objects in the namespace.
func (value valueOf[V]) find(tree *Tree, first, last V, namespace string) (r postingRange) {
	from, to := "", ""
	if namespace != "" {
		from, to = namespace+"/", namespace+"0" // "0" follows "/"
	}
	r.from = position(tree, func(o *object.Object) bool {
		v, _ := value(o)
		return v > first || v == first && o.Key >= from
	})
	r.to = position(tree, func(o *object.Object) bool {
		v, _ := value(o)
		return v > last || v == last && to != "" && o.Key >= to
	})
	return r
}

func (x *index) replaced(prev, next *object.Object) {
	if !x.built {
		x.pending = append(x.pending, replacement{prev, next})
	} else if x.replace(x.tree, prev, next) {
		x.copy = nil
	}
}

// snapshot returns a copy of the tree that nobody changes, or nil while there is none.
func (x *index) snapshot() *Tree {
	if x == nil || !x.built {
		return nil
	}
	if x.copy == nil {
		x.copy = x.tree.Copy()
	}
	return x.copy
}

// indexKey identifies an index.
type indexKey struct {
	kind object.TermKind
	key  string
}

// indexes are the indexes of one store, guarded by Store.mu. An index by terms is built in the
// background when a selector could use it for the second time. An index by hashes is built when a
// small shard is read. Indexes are dropped when they have not been used for a while, so that only
// indexes in use cost memory.
type indexes struct {
	max    int
	byKey  map[indexKey]*index
	wanted map[indexKey]time.Time // could have been used once
	// shards are by shard.Key, nil where there is none. Every snapshot has a copy of them, and so
	// do snapshots made from those by undoing history. Reads of an exact version, such as the pages
	// of a list, therefore find the shard as it was.
	shards [shard.Keys]*index
}

const (
	// smallCollection is the number of objects below which a scan is as fast as an index.
	smallCollection = 256
	// maxWanted bounds the memory for indexes that could have been used once.
	maxWanted = 256
	// indexIdle is how long an index stays without use. If there are too many, one that was not
	// used for indexContested makes room for another.
	indexIdle      = 10 * time.Minute
	indexContested = time.Minute
)

func (t *indexes) all() iter.Seq[*index] {
	return func(yield func(*index) bool) {
		for _, x := range t.byKey {
			if !yield(x) {
				return
			}
		}
		for _, x := range t.shards {
			if x != nil && !yield(x) {
				return
			}
		}
	}
}

// dropIf drops the indexes for which drop returns true.
func (t *indexes) dropIf(drop func(*index) bool) {
	maps.DeleteFunc(t.byKey, func(_ indexKey, x *index) bool { return drop(x) })
	for key, x := range t.shards {
		if x != nil && drop(x) {
			t.shards[key] = nil
		}
	}
}

// expire drops the indexes that nobody has used for a while.
func (t *indexes) expire(now time.Time) {
	t.dropIf(func(x *index) bool { return x.built && now.Sub(x.used) >= indexIdle })
	maps.DeleteFunc(t.wanted, func(_ indexKey, requested time.Time) bool { return now.Sub(requested) >= indexIdle })
}

// want records that a selector could have used an index that does not exist. It returns a new index
// if it must be built now, else nil.
func (t *indexes) want(term *object.Equality, now time.Time) *index {
	key := indexKey{term.Kind, term.Key}
	if _, again := t.wanted[key]; !again {
		if t.wanted == nil || len(t.wanted) >= maxWanted {
			t.wanted = make(map[indexKey]time.Time)
		}
		t.wanted[key] = now
		return nil
	}
	if len(t.byKey) >= t.max && !t.makeRoom(now) {
		return nil
	}
	delete(t.wanted, key)
	x := &index{order: valueOfTerm(term), used: now}
	t.byKey[key] = x
	return x
}

// makeRoom drops the least recently used index, if that was not used for indexContested.
func (t *indexes) makeRoom(now time.Time) bool {
	var oldest indexKey
	var used time.Time
	for key, x := range t.byKey {
		if x.built && now.Sub(x.used) >= indexContested && (used.IsZero() || x.used.Before(used)) {
			oldest, used = key, x.used
		}
	}
	delete(t.byKey, oldest)
	return !used.IsZero()
}

// postings are the ranges of one index that match one term of a filter, or a shard.
type postings struct {
	tree   *Tree
	ranges []postingRange
	count  int
}

// postingRange is a range of positions in an index.
type postingRange struct{ from, to int }

func (p *postings) add(r postingRange) {
	if r.from < r.to {
		p.ranges = append(p.ranges, r)
		p.count += r.to - r.from
	}
}

// selectFrom returns the objects of the ranges that match, in the order of the index.
func (p *postings) selectFrom(cancel *Cancellation, matches func(*object.Object) bool) []*object.Object {
	objs := make([]*object.Object, 0, p.count)
	collect := cancel.Collect(&objs, matches)
	for _, r := range p.ranges {
		first, _ := p.tree.GetAt(r.from)
		left := r.to - r.from
		p.tree.Ascend(first, func(o *object.Object) bool {
			left--
			return collect(o) && left > 0
		})
	}
	return objs
}

func sortByKey(objs []*object.Object) {
	slices.SortFunc(objs, func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) })
}
