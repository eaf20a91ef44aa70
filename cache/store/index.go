package store

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/kubeweir/kubeweir/object"
)

// index is an ordered tree of the objects that have a value for one label, one
// selectable field or a name, by (value, key). So the objects of one value are a
// range of it in key order, those of one value in one namespace a smaller range,
// and both can be counted by descending. It holds pointers only, about 12 bytes
// an object, and like the main tree it is read from copies.
type index struct {
	value valueOf
	tree  *Tree
	copy  *Tree // shared by readers, nil after a change
	// pending are the changes that came while the tree was being built; nil
	// before and after.
	pending []replacement
	built   bool
	used    time.Time
}

// valueOf reads the indexed value of an object, false if it has none.
type valueOf func(*object.Object) (string, bool)

type replacement struct{ prev, next *object.Object }

// indexKey names an index.
type indexKey struct {
	kind object.TermKind
	key  string
}

// indexes are those of a collection; store.mu guards them. An index is built
// when a selector asks for it the second time, beside the feed, and dropped when
// no selector did for a while: only what is used costs memory.
type indexes struct {
	max    int
	byKey  map[indexKey]*index
	wanted map[indexKey]time.Time // asked for once
}

const (
	// smallCollection is the size below which a scan is as good as an index.
	smallCollection = 256
	// maxWanted bounds the memory of selectors that came once.
	maxWanted = 256
	// indexIdle is how long an index stays without use. One that was not used
	// for indexContested gives way to another when there are too many.
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

// build makes the tree of the objects of v.
func (x *index) build(v *View) *Tree {
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

// snapshot is a copy of the tree that nobody changes.
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

// expire drops the indexes that no selector used for a while.
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

// want says that a selector could have used an index that is not there, and
// returns it, not built, when it is worth building now.
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

// makeRoom drops the index that was not used for the longest time.
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

// postings are the ranges of one index that a filter's term leaves.
type postings struct {
	index  *index
	tree   *Tree
	ranges []postingRange
	count  int
}

// postingRange is a range of positions in an index.
type postingRange struct{ from, to int }

// find looks a term up. Within namespace ("" for all) only.
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

// rank is the number of objects below (value, key).
func (p *postings) rank(value, key string) int {
	return sort.Search(p.tree.Len(), func(i int) bool {
		o, _ := p.tree.GetAt(i)
		v, _ := p.index.value(o)
		return v > value || v == value && o.Key >= key
	})
}

// end is the number of objects up to the last of value.
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
