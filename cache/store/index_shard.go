package store

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/tidwall/btree"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
)

// shardIndex holds the objects of a collection in the order of the hashes of their uid or
// namespace, then by key, so that each hash range of a shard is a range of it. It is built when a
// small shard is read for the first time and dropped when none was read for indexIdle. It costs
// about 20 bytes per object.
//
// Every snapshot taken meanwhile has a copy of it, and so do snapshots made from those by undoing
// history. Reads of an exact version, such as the pages of a list, therefore find the shard as it
// was.
type shardIndex struct {
	tree *hashTree
	copy *hashTree // shared by snapshots, nil after a change
	// pending are the changes during the building of the tree.
	pending []replacement
	built   bool
	used    time.Time
}

// newShardTree returns the tree of the objects of v.
func newShardTree(key shard.Key, v *Snapshot) *hashTree {
	// Loading in the order of the hashes fills the nodes of the tree.
	all := make([]hashed, 0, v.Len())
	v.tree.Scan(func(o *object.Object) bool {
		all = append(all, hashed{o.ShardHash(key), o})
		return true
	})
	slices.SortStableFunc(all, func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
	tree := btree.NewBTreeGOptions(byHash, btree.Options{NoLocks: true})
	for _, h := range all {
		tree.Load(h)
	}
	return tree
}

func (x *shardIndex) replaced(key shard.Key, prev, next *object.Object) {
	if !x.built {
		x.pending = append(x.pending, replacement{prev, next})
		return
	}
	x.copy = nil
	replaceHashed(x.tree, key, prev, next)
}

// snapshot returns a copy of the tree that nobody changes, or nil while there is none.
func (x *shardIndex) snapshot() *hashTree {
	if x == nil || !x.built {
		return nil
	}
	if x.copy == nil {
		x.copy = x.tree.Copy()
	}
	return x.copy
}

// shardIndexes are those of one store by their key, guarded by Store.mu.
type shardIndexes [shard.Keys]*shardIndex

func (t *shardIndexes) replaced(prev, next *object.Object) {
	for key, x := range t {
		if x != nil {
			x.replaced(shard.Key(key), prev, next)
		}
	}
}

// snapshots returns the copies for a snapshot.
func (t *shardIndexes) snapshots() (trees [shard.Keys]*hashTree) {
	for key, x := range t {
		trees[key] = x.snapshot()
	}
	return trees
}

func (t *shardIndexes) built() int {
	n := 0
	for _, x := range t {
		if x != nil && x.built {
			n++
		}
	}
	return n
}

// expire drops the indexes by which no shard was read for a while and reports whether there were
// any.
func (t *shardIndexes) expire(now time.Time) (dropped bool) {
	for key, x := range t {
		if x != nil && x.built && now.Sub(x.used) >= indexIdle {
			t[key], dropped = nil, true
		}
	}
	return dropped
}

// sortCost is how many objects can be scanned in the time that it takes to find one by its hash,
// far from its neighbors in memory, and to sort it by its key again.
const sortCost = 6

// worthIndex reports whether a shard is so small that using an index is faster than a scan.
func worthIndex(s *shard.Selector) bool { return s.Part()*sortCost <= 1 }

// countHashes returns the number of objects in a shard.
func countHashes(tree *hashTree, s *shard.Selector) (n int) {
	below := func(found func(hash uint64) bool) int {
		return sort.Search(tree.Len(), func(i int) bool {
			h, _ := tree.GetAt(i)
			return found(h.hash)
		})
	}
	for _, r := range s.Ranges() {
		n += below(func(hash uint64) bool { return hash > r.Last }) - below(func(hash uint64) bool { return hash >= r.First })
	}
	return n
}

// SelectShard returns the objects that f matches, in key order, of those in namespace ("" for all)
// with a key of at least from. f.Shard must not be nil. ok is false without an index, or if a scan
// is cheaper; a scan for a page of limit objects (0 for all) stops when the page is full. The cost
// depends on the size of the shard alone.
func (v *Snapshot) SelectShard(f *object.Filter, namespace, from string, limit int, looking *Cancellation) (objs []*object.Object, ok bool) {
	tree := v.shards[f.Shard.Key()]
	if tree == nil || !worthIndex(f.Shard) {
		return nil, false
	}
	held, looks := countHashes(tree, f.Shard), v.CountFrom(namespace, from)
	if limit > 0 && held > 0 && !f.HasTerms() {
		looks = min(looks, int(float64(limit)*float64(tree.Len())/float64(held)))
	}
	if held*sortCost > looks {
		return nil, false
	}
	objs = make([]*object.Object, 0, held)
	for _, r := range f.Shard.Ranges() {
		tree.Ascend(hashed{r.First, new(object.Object)}, func(h hashed) bool {
			if h.hash > r.Last || looking.Requested() {
				return false
			}
			if h.o.Key >= from && (namespace == "" || h.o.Namespace == namespace) && f.Matches(h.o) {
				objs = append(objs, h.o)
			}
			return true
		})
	}
	slices.SortFunc(objs, func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) })
	return objs, true
}
