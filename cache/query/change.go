package query

import (
	"context"
	"slices"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

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
	at, i := 0, 0
	for i < len(objs) {
		n := common(before[at:], objs[i:])
		if n > 0 {
			c.same = append(c.same, run{at, i, n})
			c.gone -= n
			at, i = at+n, i+n
			continue
		}
		for at < len(before) && before[at].Key < objs[i].Key {
			at++
		}
		if at < len(before) && before[at] == objs[i] {
			continue
		}
		if at < len(before) && before[at].Key == objs[i].Key {
			at++
		}
		c.fresh = append(c.fresh, int32(i))
		i++
	}
	return c
}

// common returns the length of the common prefix.
func common(a, b []*object.Object) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// carry makes the column of objs from base, the column of the objects before the change.
func carry(ctx context.Context, base *column, c *change, objs []*object.Object, s valueReader) (*column, error) {
	looking := store.NewCancellation(ctx)
	codes := make([]uint32, len(objs))
	for _, r := range c.same {
		copy(codes[r.after:r.after+r.n], base.codes[r.before:])
	}
	var fresh []Value // their codes follow those of base.values
	for _, at := range c.fresh {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		token, err := s.token(objs[at])
		if err != nil {
			return nil, err
		}
		value := s.read(token)
		if value.Kind == None {
			continue
		}
		if place, known := slices.BinarySearchFunc(base.values, value, Compare); known {
			codes[at] = uint32(place + 1)
		} else {
			fresh = append(fresh, value)
			codes[at] = uint32(len(base.values) + len(fresh))
		}
	}
	col := base.with(codes, fresh)
	if col.unused = base.unused + c.gone; col.unused > len(col.values)/8+16 {
		col = col.compact()
	}
	return col, nil
}

// with returns the column of codes that refer to the values of c, and to fresh after them.
func (c *column) with(codes []uint32, fresh []Value) *column {
	if len(fresh) == 0 {
		return &column{codes: codes, values: c.values, valueBytes: c.valueBytes, bytes: int64(len(codes))*4 + c.valueBytes}
	}
	order := sortedPlaces(fresh)
	recoded := make([]uint32, 1, len(c.values)+len(fresh)+1)
	ofFresh := make([]uint32, len(fresh))
	values := make([]Value, 0, len(c.values)+len(fresh))
	take := func(upTo int) { // of c.values
		for old := len(recoded) - 1; old < upTo; old++ {
			values = append(values, c.values[old])
			recoded = append(recoded, uint32(len(values)))
		}
	}
	for i, at := range order {
		if i == 0 || Compare(fresh[order[i-1]], fresh[at]) != 0 {
			place, _ := slices.BinarySearchFunc(c.values, fresh[at], Compare)
			take(place)
			values = append(values, fresh[at])
		}
		ofFresh[at] = uint32(len(values))
	}
	take(len(c.values))
	recoded = append(recoded, ofFresh...)
	for i, code := range codes {
		codes[i] = recoded[code]
	}
	return withValues(codes, values)
}

// compact drops the values that no object has.
func (c *column) compact() *column {
	recoded := make([]uint32, len(c.values)+1)
	for _, code := range c.codes {
		recoded[code] = 1
	}
	values := make([]Value, 0, len(c.values))
	for i := range c.values {
		if recoded[i+1] > 0 {
			values = append(values, c.values[i])
			recoded[i+1] = uint32(len(values))
		}
	}
	recoded[0] = 0
	for i, code := range c.codes {
		c.codes[i] = recoded[code]
	}
	return withValues(c.codes, slices.Clip(values))
}

// move appends positions in the older frame to moved, translated to the newer frame. It skips
// objects that are gone.
func (c *change) move(moved, positions []int32) []int32 {
	if c.keepsPlaces() {
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

// keepsPlaces reports whether objects were only replaced, each by one with the same key.
func (c *change) keepsPlaces() bool {
	return c.gone == len(c.fresh) && !slices.ContainsFunc(c.same, func(r run) bool { return r.before != r.after })
}
