package store

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// Select returns the objects of a snapshot that f matches, in key order, and that snapshot, which
// is not older than the latest one at the time of the call. The snapshot is nil if no index helps,
// so that the caller has to scan one, and if ctx has ended.
func (s *Store) Select(ctx context.Context, f *object.Filter, namespaced bool, now time.Time) (objs []*object.Object, at *Snapshot) {
	terms := f.Equalities()
	if len(terms) == 0 || s.LatestRV() > s.rv.Load() { // the indexes are of the applied state
		return nil, nil
	}
	namespace := ""
	for i := range terms {
		if t := &terms[i]; t.Kind == object.NamespaceTerm && len(t.Values) == 1 {
			namespace = t.Values[0]
		}
	}
	if key, one := singleKey(terms, namespace, namespaced); one {
		v := s.Current()
		if o := v.Get(key); o != nil && f.Matches(o) {
			objs = append(objs, o)
		}
		return objs, v
	}
	v, found := s.lookUp(terms, now)
	best := choose(found, terms, namespace)
	cancel := Cancellation{Context: ctx}
	switch {
	case best != nil && (namespace == "" || best.count <= v.CountFrom(namespace, "")):
		objs = best.selectFrom(&cancel, f.Matches)
		if len(best.ranges) > 1 {
			sortByKey(objs)
		}
	case namespace != "":
		v.Ascend(namespace, "", cancel.Collect(&objs, f.Matches))
	default:
		return nil, nil
	}
	if cancel.Seen {
		return nil, nil
	}
	return objs, v
}

// singleKey returns the key of the only object that can match, if the terms name it.
func singleKey(terms []object.Equality, namespace string, namespaced bool) (key string, ok bool) {
	t := &terms[0] // a term for the name comes first
	if t.Kind != object.NameTerm || len(t.Values) != 1 || namespaced == (namespace == "") {
		return "", false
	}
	if namespaced {
		return namespace + "/" + t.Values[0], true
	}
	return t.Values[0], true
}

// lookUp returns the current snapshot and, parallel to the terms, the trees of their indexes, nil
// where there is none (yet).
func (s *Store) lookUp(terms []object.Equality, now time.Time) (*Snapshot, []*Tree) {
	found := make([]*Tree, len(terms))
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.currentLocked()
	for i := range terms {
		t := &terms[i]
		if t.Kind == object.NamespaceTerm || s.mu.closed {
			continue
		}
		x := s.mu.indexes.byKey[indexKey{t.Kind, t.Key}]
		if x == nil && v.Len() >= smallCollection {
			if x = s.mu.indexes.want(t, now); x != nil {
				s.Spawn(func() { s.buildIndex(x, v) })
			}
		}
		if x != nil {
			x.used = now
			found[i] = x.snapshot()
		}
	}
	return v, found
}

// choose looks the terms up in their indexes and returns the one with the fewest objects.
func choose(found []*Tree, terms []object.Equality, namespace string) *postings {
	var best *postings
	for i, tree := range found {
		if tree == nil {
			continue
		}
		p, by := &postings{tree: tree}, valueOfTerm(&terms[i])
		for _, value := range terms[i].Values {
			p.add(by.find(tree, value, value, namespace))
		}
		if best == nil || p.count < best.count {
			best = p
		}
	}
	return best
}

// WantShard records that a shard is being read. Where an index pays, it is built for later reads,
// or kept.
func (s *Store) WantShard(shard *shard.Selector, now time.Time) {
	if !worthIndex(shard) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.indexes.shards[shard.Key()]
	if x == nil && !s.mu.closed && s.mu.tree.Len() >= smallCollection {
		x = &index{order: hashBy(shard.Key())}
		s.mu.indexes.shards[shard.Key()] = x
		v := s.currentLocked()
		s.Spawn(func() { s.buildIndex(x, v) })
	}
	if x != nil {
		x.used = now
	}
}

// buildIndex fills x from v and then applies the pending changes. After a panic it drops x, which
// would otherwise collect changes forever.
func (s *Store) buildIndex(x *index, v *Snapshot) {
	defer func() {
		if !x.built {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.indexes.dropIf(func(other *index) bool { return other == x })
		}
	}()
	tree := x.build(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	x.tree, x.built = tree, true
	for _, r := range x.pending {
		x.replaced(r.prev, r.next)
	}
	x.pending = nil
	s.view.Store(nil) // the next snapshot has it, if it is one by hashes
}

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
func (v *Snapshot) SelectShard(f *object.Filter, namespace, from string, limit int, cancel *Cancellation) (objs []*object.Object, ok bool) {
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
	objs = held.selectFrom(cancel, func(o *object.Object) bool {
		return o.Key >= from && (namespace == "" || o.Namespace == namespace) && f.Matches(o)
	})
	sortByKey(objs)
	return objs, true
}
