package store

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/kubeweir/kubeweir/object"
)

// index is a tree of the objects that have a value for one label, one selectable field or a name,
// ordered by (value, key). The objects of one value are a range of it in key order, and so are
// those of one value in one namespace; the size of a range takes O(log n). It holds pointers only,
// about 12 bytes per object. Readers use copies of it, as of the main tree.
type index struct {
	value valueOf
	tree  *Tree
	copy  *Tree // shared by readers, nil after a change
	// pending are the changes during the building of the tree; nil otherwise.
	pending []replacement
	built   bool
	used    time.Time
}

// valueOf returns the indexed value of an object, or false if the object has none.
type valueOf func(*object.Object) (string, bool)

type replacement struct{ prev, next *object.Object }

// indexKey identifies an index.
type indexKey struct {
	kind object.TermKind
	key  string
}

// indexes are those of one store, guarded by Store.mu. An index is built in the background when a
// selector could use it for the second time, and dropped when no selector has used it for a while,
// so that only indexes in use cost memory.
type indexes struct {
	max    int
	byKey  map[indexKey]*index
	wanted map[indexKey]time.Time // could have been used once
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

func newIndex(term *object.Equality) *index {
	idx := &index{}
	switch term.Kind {
	case object.LabelTerm:
		key := term.Key
		idx.value = func(o *object.Object) (string, bool) { return o.Labels.Lookup(key) }
	case object.FieldTerm:
		field := term.Field
		idx.value = func(o *object.Object) (string, bool) {
			if field >= len(o.Fields) {
				return "", false
			}
			return o.Fields[field], true
		}
	default:
		idx.value = func(o *object.Object) (string, bool) { return o.Name, true }
	}
	return idx
}

func (x *index) less(a, b *object.Object) bool {
	va, _ := x.value(a)
	vb, _ := x.value(b)
	if c := cmp.Compare(va, vb); c != 0 {
		return c < 0
	}
	return a.Key < b.Key
}

// build returns the tree of the objects of v.
func (x *index) build(v *Snapshot) *Tree {
	byValue := make(map[string][]*object.Object)
	v.tree.Scan(func(o *object.Object) bool {
		if value, ok := x.value(o); ok {
			byValue[value] = append(byValue[value], o)
		}
		return true
	})
	values := make([]string, 0, len(byValue))
	for value := range byValue {
		values = append(values, value)
	}
	slices.Sort(values)
	tree := newTreeBy(x.less)
	for _, value := range values {
		for _, o := range byValue[value] {
			tree.Load(o)
		}
	}
	return tree
}

func (x *index) replaced(prev, next *object.Object) {
	if !x.built {
		x.pending = append(x.pending, replacement{prev, next})
		return
	}
	before, had := "", false
	if prev != nil {
		before, had = x.value(prev)
	}
	after, has := "", false
	if next != nil {
		after, has = x.value(next)
	}
	if had && (!has || before != after) {
		x.tree.Delete(prev)
		x.copy = nil
	}
	if has {
		x.tree.Set(next)
		x.copy = nil
	}
}

// snapshot returns a copy of the tree that nobody changes.
func (x *index) snapshot() *Tree {
	if x.copy == nil {
		x.copy = x.tree.Copy()
	}
	return x.copy
}

func (t *indexes) replaced(prev, next *object.Object) {
	for _, x := range t.byKey {
		x.replaced(prev, next)
	}
}

func (t *indexes) built() int {
	n := 0
	for _, x := range t.byKey {
		if x.built {
			n++
		}
	}
	return n
}

func (t *indexes) drop() { t.byKey, t.wanted = nil, nil }

// forget drops one index.
func (t *indexes) forget(x *index) {
	maps.DeleteFunc(t.byKey, func(_ indexKey, other *index) bool { return other == x })
}

// expire drops the indexes that no selector has used for a while.
func (t *indexes) expire(now time.Time) {
	for key, x := range t.byKey {
		if x.built && now.Sub(x.used) >= indexIdle {
			delete(t.byKey, key)
		}
	}
	for key, asked := range t.wanted {
		if now.Sub(asked) >= indexIdle {
			delete(t.wanted, key)
		}
	}
}

// want records that a selector could have used an index that does not exist. It returns a new index
// if it is to be built now, else nil.
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
	x := newIndex(term)
	x.used = now
	if t.byKey == nil {
		t.byKey = make(map[indexKey]*index)
	}
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

// postings are the ranges of one index that match one term of a filter.
type postings struct {
	index  *index
	tree   *Tree
	ranges []postingRange
	count  int
}

// postingRange is a range of positions in an index.
type postingRange struct{ from, to int }

// find adds the ranges of the values in namespace ("" for all).
func (p *postings) find(values []string, namespace string) {
	for _, value := range values {
		r := postingRange{from: p.rank(value, ""), to: p.end(value)}
		if namespace != "" {
			r = postingRange{from: p.rank(value, namespace+"/"), to: p.rank(value, namespace+"0")}
		}
		if r.from < r.to {
			p.ranges = append(p.ranges, r)
			p.count += r.to - r.from
		}
	}
}

// rank returns the number of objects below (value, key).
func (p *postings) rank(value, key string) int {
	return sort.Search(p.tree.Len(), func(i int) bool {
		o, _ := p.tree.GetAt(i)
		v, _ := p.index.value(o)
		return v > value || v == value && o.Key >= key
	})
}

// end returns the number of objects up to the last one with the value.
func (p *postings) end(value string) int {
	return sort.Search(p.tree.Len(), func(i int) bool {
		o, _ := p.tree.GetAt(i)
		v, _ := p.index.value(o)
		return v > value
	})
}

// selectFrom returns the objects of the ranges that f matches, in key order.
func (p *postings) selectFrom(s *Cancellation, f *object.Filter) []*object.Object {
	objs := make([]*object.Object, 0, p.count)
	for _, r := range p.ranges {
		first, _ := p.tree.GetAt(r.from)
		left := r.to - r.from
		p.tree.Ascend(first, func(o *object.Object) bool {
			if s.Requested() {
				return false
			}
			if f.Matches(o) {
				objs = append(objs, o)
			}
			left--
			return left > 0
		})
	}
	if len(p.ranges) > 1 {
		slices.SortFunc(objs, func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) })
	}
	return objs
}
