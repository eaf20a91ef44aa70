package query

import (
	"cmp"
	"slices"
)

// sortKeys are the columns to sort positions by, the most significant one first.
type sortKeys []sortKey

type sortKey struct {
	*column
	descending bool
}

// rank returns the rank of an object's value among all values, from 0 on. Objects without a value
// come last.
func (k sortKey) rank(at int32) int {
	code := int(k.codes[at])
	switch {
	case code == 0:
		return len(k.values)
	case k.descending:
		return len(k.values) - code
	}
	return code - 1
}

// compare orders two positions, equal ones as they are in the frame.
func (by sortKeys) compare(a, b int32) int {
	for _, key := range by {
		if c := cmp.Compare(key.rank(a), key.rank(b)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

// sort sorts ascending positions. It may change them in place.
func (by sortKeys) sort(positions []int32) []int32 {
	if slices.ContainsFunc(by, func(key sortKey) bool { return len(positions) < len(key.values)/4 }) {
		slices.SortFunc(positions, by.compare)
		return positions
	}
	for _, key := range slices.Backward(by) {
		starts := make([]int32, len(key.values)+2)
		for _, at := range positions {
			starts[key.rank(at)+1]++
		}
		for i := 1; i < len(starts); i++ {
			starts[i] += starts[i-1]
		}
		sorted := make([]int32, len(positions))
		for _, at := range positions {
			rank := key.rank(at)
			sorted[starts[rank]] = at
			starts[rank]++
		}
		positions = sorted
	}
	return positions
}

// fewFresh is the maximum share of fresh objects that are inserted into an order one by one. With
// more of them, sorting all objects is cheaper.
const fewFresh = 1.0 / 16

// order returns all positions of f in order. If base, the order of an older frame, is not nil, it
// inserts the fresh objects into that.
func (by sortKeys) order(f *frame, base *column) []int32 {
	var c *change
	if base != nil {
		c = changeOf(base.frame.objs, f.objs)
	}
	if c == nil || float64(len(c.fresh)) > fewFresh*float64(len(f.objs)) {
		all := rows{to: len(f.objs)}
		return by.sort(all.list())
	}
	fresh := by.sort(c.fresh)
	// The common objects move to the end of what becomes the order, and from there, in runs, to
	// their places.
	order := c.move(make([]int32, len(fresh), len(f.objs)), base.order)
	kept, to := order[len(fresh):], 0
	for _, at := range fresh {
		n, _ := slices.BinarySearchFunc(kept, at, by.compare)
		to += copy(order[to:], kept[:n])
		order[to] = at
		to++
		kept = kept[n:]
	}
	return order
}
