package store

import (
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
)

// sortCost is how many objects can be scanned in the time that it takes to find one by its hash,
// far from its neighbors in memory, and to sort it by its key again.
const sortCost = 6

// worthIndex reports whether a shard is so small that using an index is faster than a scan.
func worthIndex(s *shard.Selector) bool { return s.Part()*sortCost <= 1 }

// shardPostings returns the ranges of a shard in the index tree of its key.
func shardPostings(tree *Tree, s *shard.Selector) (p postings) {
	p.tree = tree
	for _, r := range s.Ranges() {
		p.add(hashBy(s.Key()).find(tree, r.First, r.Last, ""))
	}
	return p
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
	held, looks := shardPostings(tree, f.Shard), v.CountFrom(namespace, from)
	if limit > 0 && held.count > 0 && !f.HasTerms() {
		looks = min(looks, int(float64(limit)*float64(tree.Len())/float64(held.count)))
	}
	if held.count*sortCost > looks {
		return nil, false
	}
	objs = held.selectFrom(looking, func(o *object.Object) bool {
		return o.Key >= from && (namespace == "" || o.Namespace == namespace) && f.Matches(o)
	})
	sortByKey(objs)
	return objs, true
}
