package store

import (
	"github.com/tidwall/btree"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
)

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

// hashed is an object and its hash.
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

// replaceHashed replaces prev by next. Either may be nil.
func replaceHashed(tree *hashTree, key shard.Key, prev, next *object.Object) {
	if prev != nil && (next == nil || prev.ShardHash(key) != next.ShardHash(key)) {
		tree.Delete(hashed{prev.ShardHash(key), prev})
	}
	if next != nil {
		tree.Set(hashed{next.ShardHash(key), next})
	}
}
