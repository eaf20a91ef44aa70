package cache

import (
	"sort"
	"strings"
	"sync"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
)

// View is the state of a collection at one version. It is immutable, safe for
// any number of goroutines and costs nothing to hold beyond the objects that
// the collection has replaced since.
type View struct {
	rv      uint64
	content uint64
	bytes   int64
	churn   int64 // of the collection when the view was current, see retained
	tree    *objectTree
	pivots  *pivots
	mark    mark
	// shards are the objects by their hashes, nil where there is no index of those.
	shards [shard.Keys]*hashTree
}

// mark is how what has become of a view is found out (see store.changedSince). Views of the
// past have none.
type mark struct {
	known bool
	// position is behind events of the mux all of which the view has, recoded that of the
	// store when the view was made.
	position uint64
	recoded  int
}

// RV is the version that the view shows: every write up to it and none above.
func (v *View) RV() uint64 { return v.rv }

// Content identifies the objects of the view: two views of one collection with
// the same Content hold the same objects, though their RV may differ because
// the upstream's version moved on by writes elsewhere. What is rendered from
// the objects alone can be kept under it. It is unique within the process.
func (v *View) Content() uint64 { return v.content }

// Len is the number of objects.
func (v *View) Len() int { return v.tree.Len() }

// Bytes is the sum of the lengths of all objects' Raw.
func (v *View) Bytes() int64 { return v.bytes }

// Get returns the object at key ("namespace/name", or "name" when
// cluster-scoped), nil when there is none.
func (v *View) Get(key string) *object.Object {
	p := v.pivots.get(key)
	o, _ := v.tree.Get(p)
	v.pivots.put(p)
	return o
}

// Ascend calls visit for the objects of namespace ("" for all) whose key is
// fromKey or above, in bytewise order of their keys, until visit returns false.
func (v *View) Ascend(namespace, fromKey string, visit func(*object.Object) bool) {
	if namespace == "" {
		if fromKey == "" {
			v.tree.Scan(visit)
			return
		}
		v.tree.Ascend(&object.Object{Key: fromKey}, visit)
		return
	}
	prefix := namespace + "/"
	v.tree.Ascend(&object.Object{Key: max(prefix, fromKey)}, func(o *object.Object) bool {
		return strings.HasPrefix(o.Key, prefix) && visit(o)
	})
}

// Count is the number of objects in namespace, "" for all. It costs a few
// descents of the tree, whatever the number.
func (v *View) Count(namespace string) int { return v.CountFrom(namespace, "") }

// CountFrom is the number of objects of namespace ("" for all) whose key is
// fromKey or above: what Ascend would visit. It costs as little as Count.
func (v *View) CountFrom(namespace, fromKey string) int {
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

// rank is the number of objects below key.
func (v *View) rank(key string) int {
	return sort.Search(v.tree.Len(), func(i int) bool {
		o, _ := v.tree.GetAt(i)
		return o.Key >= key
	})
}

// pivots are objects that have a key only, to look others up by: a tree compares
// objects, and one made for each lookup would be its only allocation.
type pivots struct{ pool sync.Pool }

func (p *pivots) get(key string) *object.Object {
	o, _ := p.pool.Get().(*object.Object)
	if o == nil {
		o = new(object.Object)
	}
	o.Key = key
	return o
}

func (p *pivots) put(o *object.Object) {
	o.Key = ""
	p.pool.Put(o)
}
