package store

import (
	"sort"
	"strings"
	"sync"

	"github.com/kubeweir/kubeweir/api"
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
	tree    *Tree
	pivots  *pivots
	mark    Mark
	// shards are the objects by their hashes, nil where there is no index of those.
	shards [shard.Keys]*hashTree
}

// Mark is how what has become of a view is found out (see store.changedSince). Views of the
// past have none.
type Mark struct {
	known bool
	// position is behind events of the mux all of which the view has, recoded that of the
	// store when the view was made.
	position uint64
	recoded  int
}

// IsKnown reports whether there is such a place: views of the past have none.
func (m Mark) IsKnown() bool { return m.known }

// RV is the version that the view shows: every write up to it and none above.
func (v *View) RV() uint64 { return v.rv }

// Content identifies the objects of the view: two views of one collection with
// the same Content hold the same objects, though their RV may differ because
// the upstream's version moved on by writes elsewhere. What is rendered from
// the objects alone can be kept under it. It is unique within the process.
func (v *View) Content() uint64 { return v.content }

// Churn is a measure of what has been replaced: the bytes of the objects and of the tree nodes
// that the collection had replaced, since its beginning, when the view was current. What two
// views keep from being freed differs by the difference of theirs at most.
func (v *View) Churn() int64 { return v.churn }

// Mark is where the view is among the events of its store, for store.changedSince.
func (v *View) Mark() Mark { return v.mark }

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

// At is the object at a position in key order, from 0 on.
func (v *View) At(i int) *object.Object {
	o, _ := v.tree.GetAt(i)
	return o
}

// Each calls visit for all objects in key order and ends with its first error.
func (v *View) Each(visit func(*object.Object) error) (err error) {
	v.tree.Scan(func(o *object.Object) bool {
		err = visit(o)
		return err == nil
	})
	return err
}

// ChangesSince compares v with an earlier view by a look at every object: set is called for those
// that are new or have changed, gone for the keys of those that v does not have, both in key order.
// It ends with their first error.
func (v *View) ChangesSince(earlier *View, set func(*object.Object) error, gone func(key string) error) error {
	old := earlier.tree.Iter()
	defer old.Release()
	more := old.First()
	drop := func() error {
		key := old.Item().Key
		more = old.Next()
		return gone(key)
	}
	err := v.Each(func(o *object.Object) error {
		for more && old.Item().Key < o.Key {
			if err := drop(); err != nil {
				return err
			}
		}
		if more && old.Item().Key == o.Key {
			same := old.Item() == o
			more = old.Next()
			if same {
				return nil
			}
		}
		return set(o)
	})
	for more && err == nil {
		err = drop()
	}
	return err
}

// PageToken is the token of a page that begins with an object which v holds, at a version. It
// begins as servers have theirs begin, behind the object before: stores other than etcd drop
// the zero byte at the end of that, and never begin with the object that is named.
func (v *View) PageToken(at uint64, key string) api.ContinueToken {
	before := key[:len(key)-1] // which is nobody's, or found
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

// NewestUpTo is the object of the highest version up to a version, nil if there is none.
func (v *View) NewestUpTo(upTo uint64) (newest *object.Object) {
	v.Ascend("", "", func(o *object.Object) bool {
		if o.RV <= upTo && (newest == nil || o.RV > newest.RV) {
			newest = o
		}
		return true
	})
	return newest
}
