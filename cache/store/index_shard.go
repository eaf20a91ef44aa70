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

// shardIndex holds the objects of a collection ordered by the hash of their uid or
// namespace and then by key, so that those of a shard are a range of it for each of its
// ranges. There is none before a small shard is read for the first time, and it goes when
// none was for indexIdle. An object takes some 20 bytes of it.
//
// Every View taken meanwhile has a copy of it (see View.shards), and so has one that is
// made of it by undoing history, so that reads of a version, of the pages of a list above
// all, find the shard as it was then.
type shardIndex struct {
	tree *hashTree
	copy *hashTree // shared by views, nil after a change
	// pending are the changes that came while the tree was being built.
	pending []replacement
	built   bool
	used    time.Time
}

// hashed is an object with its hash.
type hashed struct {
	hash uint64
	o    *object.Object
}

type hashTree = btree.BTreeG[hashed]

func byHash(a, b hashed) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.o.Key < b.o.Key
}

// newShardTree makes the tree of the objects of v.
func newShardTree(key shard.Key, v *View) *hashTree {
	// Made in the order of the hashes its nodes are full.
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

// replaceHashed puts next, nil for nothing, in the place of prev, which may be nil.
func replaceHashed(tree *hashTree, key shard.Key, prev, next *object.Object) {
	if prev != nil && (next == nil || prev.ShardHash(key) != next.ShardHash(key)) {
		tree.Delete(hashed{prev.ShardHash(key), prev})
	}
	if next != nil {
		tree.Set(hashed{next.ShardHash(key), next})
	}
}

// snapshot is a copy of the tree that nobody changes, nil while there is none.
func (x *shardIndex) snapshot() *hashTree {
	if x == nil || !x.built {
		return nil
	}
	if x.copy == nil {
		x.copy = x.tree.Copy()
	}
	return x.copy
}

// shardIndexes are those of a collection, by key; store.mu guards them.
type shardIndexes [shard.Keys]*shardIndex

func (t *shardIndexes) replaced(prev, next *object.Object) {
	for key, x := range t {
		if x != nil {
			x.replaced(shard.Key(key), prev, next)
		}
	}
}

// snapshots are what a view has of them.
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

// expire drops those by which nobody has read for a while, and reports whether there
// were any.
func (t *shardIndexes) expire(now time.Time) (dropped bool) {
	for key, x := range t {
		if x != nil && x.built && now.Sub(x.used) >= indexIdle {
			t[key], dropped = nil, true
		}
	}
	return dropped
}

// WantShard says that a shard is being read: what finds its objects is made, for the reads to
// come, or kept, where that pays.
func (s *Store) WantShard(shard *shard.Selector, now time.Time) {
	if worthIndex(shard) {
		s.wantShards(shard.Key(), now)
	}
}

// wantShards says that a shard of key is being read: its index is made beside the feed,
// unless it is there.
func (s *Store) wantShards(key shard.Key, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.shards[key]
	if x == nil && !s.mu.closed && s.mu.tree.Len() >= smallCollection {
		x = new(shardIndex)
		s.mu.shards[key] = x
		v := s.currentLocked()
		s.Spawn(func() { s.buildShards(key, x, v) })
	}
	if x != nil {
		x.used = now
	}
}

// buildShards fills x from v and then enters what was replaced meanwhile. After a panic x is
// forgotten, as by buildIndex.
func (s *Store) buildShards(key shard.Key, x *shardIndex, v *View) {
	defer func() {
		if !x.built {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.mu.shards[key] == x {
				s.mu.shards[key] = nil
			}
		}
	}()
	tree := newShardTree(key, v)
	s.mu.Lock()
	defer s.mu.Unlock()
	x.tree, x.built = tree, true
	for _, r := range x.pending {
		x.replaced(key, r.prev, r.next)
	}
	x.pending = nil
	s.view.Store(nil) // the next view has it
}

// sortCost is how many objects can be looked at in the time that one takes which is found
// by its hash, away from its neighbours, and sorted by its key again.
const sortCost = 6

// worthIndex reports whether a shard is small enough for an index to find it sooner than a
// look at all objects does.
func worthIndex(s *shard.Selector) bool { return s.Part()*sortCost <= 1 }

// countHashes is the number of objects in a shard.
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

// SelectShard returns the objects of v in namespace ("" for all) whose key is from or above
// and that f, which has a shard, matches, in key order. ok is false when that is not
// cheaper than to look at the objects there, of which a page of limit (0 for no pages)
// takes no more than it needs, or without an index. It costs what the shard holds.
func (v *View) SelectShard(f *object.Filter, namespace, from string, limit int, looking *Cancellation) (objs []*object.Object, ok bool) {
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
	pivot := v.pivots.get("")
	for _, r := range f.Shard.Ranges() {
		tree.Ascend(hashed{r.First, pivot}, func(h hashed) bool {
			if h.hash > r.Last || looking.Requested() {
				return false
			}
			if h.o.Key >= from && (namespace == "" || h.o.Namespace == namespace) && f.Matches(h.o) {
				objs = append(objs, h.o)
			}
			return true
		})
	}
	v.pivots.put(pivot)
	slices.SortFunc(objs, func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) })
	return objs, true
}
