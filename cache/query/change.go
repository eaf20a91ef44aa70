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

// carry makes a column of f from base, that of an older frame.
func (f *frame) carry(ctx context.Context, s valueReader, base *column) (*column, error) {
	looking := store.NewCancellation(ctx)
	c := changeOf(base.frame.objs, f.objs)
	codes := make([]uint32, len(f.objs))
	for _, r := range c.same {
		copy(codes[r.after:r.after+r.n], base.codes[r.before:])
	}
	var fresh []Value // their codes follow those of base.values
	for _, at := range c.fresh {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		token, err := s.token(f.objs[at])
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
	if len(fresh) == 0 && len(base.values) <= len(codes)/8*9+16 {
		// Values that no object has any more remain until there are new ones, or many more than
		// objects.
		bytes := base.bytes + int64(len(codes)-len(base.codes))*4
		return &column{frame: f, codes: codes, values: base.values, bytes: bytes}, nil
	}
	return f.newColumn(codes, base.values, fresh), nil
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
