package embedded

import (
	"sort"

	"github.com/tidwall/btree"
)

// index holds every key that exists and the revision of its value: 24 bytes, the
// key's own, and what a B-tree leaves empty. It says whether a precondition holds,
// where a value is in the log and how many keys there are below a prefix, without
// a look at the disk.
type index struct {
	tree  *btree.Map[string, uint64]
	bytes int // of keys
}

// indexSlot is what a key costs beside its bytes: key and revision, in nodes that
// are two thirds full.
const indexSlot = 36

func newIndex() index { return index{tree: btree.NewMap[string, uint64](0)} }

// get returns the revision of a key, 0 if it does not exist.
func (x *index) get(key string) uint64 {
	rev, _ := x.tree.Get(key)
	return rev
}

// set changes a key's revision; 0 removes it.
func (x *index) set(key string, rev uint64) {
	if rev == 0 {
		if _, had := x.tree.Delete(key); had {
			x.bytes -= len(key)
		}
		return
	}
	if _, had := x.tree.Set(key, rev); !had {
		x.bytes += len(key)
	}
}

// load adds a key that sorts after all others.
func (x *index) load(key string, rev uint64) {
	x.tree.Load(key, rev)
	x.bytes += len(key)
}

// copy returns a snapshot. It costs nothing; later changes copy the nodes that they touch, once.
func (x *index) copy() index { return index{tree: x.tree.Copy(), bytes: x.bytes} }

func (x *index) size() int { return x.bytes + indexSlot*x.tree.Len() }

// rank is the number of keys below key: a binary search over positions, which the
// tree finds by the counts in its nodes.
func (x *index) rank(key string) int {
	return sort.Search(x.tree.Len(), func(i int) bool {
		at, _, _ := x.tree.GetAt(i)
		return at >= key
	})
}

// count is the number of keys from first on that have a prefix.
func (x *index) count(prefix, from string) int {
	first := max(prefix, from)
	end := x.tree.Len()
	if after, bounded := prefixEnd(prefix); bounded {
		end = x.rank(after)
	}
	return max(end-x.rank(first), 0)
}

// prefixEnd is the first key above all that have a prefix; false if there is none.
func prefixEnd(prefix string) (string, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1}), true
		}
	}
	return "", false
}
