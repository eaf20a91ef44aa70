package query

import (
	"slices"
	"sort"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/object"
)

// frame is the objects of one snapshot in key order. Columns refer to their positions.
type frame struct {
	content uint64
	churn   int64 // see store.Snapshot.Churn
	mark    store.Mark
	objs    []*object.Object
}

// with returns the objects of a later snapshot, which differs from f at most in the objects of
// keys.
func (f *frame) with(v *store.Snapshot, keys []string) []*object.Object {
	slices.Sort(keys)
	objs := make([]*object.Object, 0, v.Len())
	from := 0
	for _, key := range slices.Compact(keys) {
		at := f.search(key)
		objs = append(objs, f.objs[from:at]...)
		if from = at; from < len(f.objs) && f.objs[from].Key == key {
			from++
		}
		if o := v.Get(key); o != nil {
			objs = append(objs, o)
		}
	}
	return append(objs, f.objs[from:]...)
}

// search returns the position of the first object whose key is at least key.
func (f *frame) search(key string) int {
	return sort.Search(len(f.objs), func(i int) bool { return f.objs[i].Key >= key })
}

// rows are ascending positions in a frame: those in [from, to), or the picked ones.
type rows struct {
	from, to int
	picked   []int32
	isPicked bool
}

func (r *rows) len() int {
	if r.isPicked {
		return len(r.picked)
	}
	return r.to - r.from
}

func (r *rows) each(visit func(at int32)) {
	if r.isPicked {
		for _, at := range r.picked {
			visit(at)
		}
		return
	}
	for at := r.from; at < r.to; at++ {
		visit(int32(at))
	}
}

// filter drops the rows that do not pass.
func (r *rows) filter(passes func(at int32) bool) {
	filtered := r.picked[:0]
	if !r.isPicked {
		filtered = make([]int32, 0, r.len())
	}
	r.each(func(at int32) {
		if passes(at) {
			filtered = append(filtered, at)
		}
	})
	r.picked, r.isPicked = filtered, true
}

// list returns the rows in a new slice.
func (r *rows) list() []int32 {
	all := make([]int32, 0, r.len())
	r.each(func(at int32) { all = append(all, at) })
	return all
}

// rowsOf returns the rows of the selected objects. ok is false if the frame does not have all of
// them, which happens when its snapshot is missing changes of its version.
func (f *frame) rowsOf(s *store.Selection) (r rows, ok bool) {
	if !s.IsPicked {
		if s.Namespace == "" {
			return rows{to: len(f.objs)}, true
		}
		return rows{from: f.search(s.Namespace + "/"), to: f.search(s.Namespace + "0")}, true // "0" follows "/"
	}
	r = rows{picked: make([]int32, 0, len(s.Objects)), isPicked: true}
	at := 0
	for _, o := range s.Objects {
		for at < len(f.objs) && f.objs[at] != o {
			at++
		}
		if at == len(f.objs) {
			return r, false
		}
		r.picked = append(r.picked, int32(at))
	}
	return r, true
}

// change is the difference between the objects of two frames. Columns and orders of the newer frame
// are made from those of the older one by it: common objects are copied in long runs, and only the
// fresh ones are read.
type change struct {
	same  []run
	fresh []int32 // ascending positions of the objects that only the newer frame has
	gone  int     // how many objects only the older frame has
}

// run is a range of objects that both frames have, with its positions in each.
type run struct{ before, after, n int }

func changeOf(before, objs []*object.Object) *change {
	c := &change{gone: len(before)}
	if len(before) == 0 {
		c.fresh = make([]int32, 0, len(objs))
	}
	for at, i := 0, 0; i < len(objs); {
		n := 0
		for at+n < len(before) && i+n < len(objs) && before[at+n] == objs[i+n] {
			n++
		}
		switch {
		case n > 0:
			c.same = append(c.same, run{at, i, n})
			c.gone -= n
			at, i = at+n, i+n
		case at < len(before) && before[at].Key < objs[i].Key:
			at++
		default:
			c.fresh = append(c.fresh, int32(i))
			i++
		}
	}
	return c
}

// move appends positions in the older frame to moved, translated to the newer frame. It skips
// objects that are gone.
func (c *change) move(moved, positions []int32) []int32 {
	if c.keepsPositions() {
		gone := make([]uint64, len(positions)/64+1) // small enough for the processor's caches
		for _, at := range c.fresh {
			gone[at/64] |= 1 << (at % 64)
		}
		for _, at := range positions {
			if gone[at/64]>>(at%64)&1 == 0 {
				moved = append(moved, at)
			}
		}
		return moved
	}
	to := make([]int32, len(positions)) // 0 for gone, else 1 + the position
	for _, r := range c.same {
		for i := range r.n {
			to[r.before+i] = int32(r.after + i + 1)
		}
	}
	for _, at := range positions {
		if now := to[at]; now > 0 {
			moved = append(moved, now-1)
		}
	}
	return moved
}

// keepsPositions reports whether objects were only replaced, each by one with the same key.
func (c *change) keepsPositions() bool {
	return c.gone == len(c.fresh) && !slices.ContainsFunc(c.same, func(r run) bool { return r.before != r.after })
}
