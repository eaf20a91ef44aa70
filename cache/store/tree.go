package store

import (
	"sort"

	"github.com/tidwall/btree"

	"github.com/kubeweir/kubeweir/object"
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

// position returns the number of objects before the first one for which reached returns true.
func position(tree *Tree, reached func(*object.Object) bool) int {
	return sort.Search(tree.Len(), func(i int) bool {
		o, _ := tree.GetAt(i)
		return reached(o)
	})
}
