package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/object"
)

// fewObjects is the size up to which the values of a selection are read by each request, because
// that is cheaper than columns of the whole collection.
const fewObjects = 256

// MaxGroups is the maximum number of distinct values to count by.
const MaxGroups = 1000

// ResultSet is the rows that a query selects and sorts, and their columns.
type ResultSet struct {
	ctx      context.Context
	user     string // whose turn it is to make columns
	redacted bool   // whether values are those of redacted objects
	resource *source.Resource
	columns  *Columns // nil if nothing is cached
	frame    *frame
	rows     rows
}

// NewResultSet returns the rows of sel. user is who waits to make a column of all objects.
func NewResultSet(ctx context.Context, k *Columns, res *source.Resource, sel *store.Selection, user string, redacted bool) *ResultSet {
	t := &ResultSet{ctx: ctx, user: user, redacted: redacted, resource: res}
	if sel.Len() > fewObjects {
		f := k.frame(sel.Snapshot)
		if r, ok := f.rowsOf(sel); ok {
			t.columns, t.frame, t.rows = k, f, r
			return t
		}
	}
	f := &frame{objs: make([]*object.Object, 0, sel.Len())}
	sel.Each(func(_ int, o *object.Object) bool {
		f.objs = append(f.objs, o)
		return true
	})
	t.frame, t.rows = f, rows{to: len(f.objs)}
	return t
}

// Len returns the number of rows.
func (t *ResultSet) Len() int { return t.rows.len() }

// Object returns the object at a position.
func (t *ResultSet) Object(at int32) *object.Object { return t.frame.objs[at] }

// CountBy returns how many rows have each value at a path, by its text, and how many have none.
func (t *ResultSet) CountBy(path Path) (groups map[string]int, without int, err error) {
	col, err := t.column(path, false)
	if err != nil {
		return nil, 0, err
	}
	counts := make([]int, len(col.values)+1)
	if t.rows.isPicked {
		t.rows.each(func(at int32) { counts[col.codes[at]]++ })
	} else {
		// Neighbors often have the same value. Counted in one place, each waits for the one before.
		codes, odd := col.codes[t.rows.from:t.rows.to], make([]int, len(counts))
		for ; len(codes) > 1; codes = codes[2:] {
			counts[codes[0]]++
			odd[codes[1]]++
		}
		for _, code := range codes {
			counts[code]++
		}
		for code, n := range odd {
			counts[code] += n
		}
	}
	groups = make(map[string]int)
	for code, n := range counts {
		if n > 0 && code > 0 && len(groups) <= MaxGroups {
			groups[col.values[code-1].Text] += n
		}
	}
	return groups, counts[0], nil
}

// column returns the values at a path.
func (t *ResultSet) column(path Path, quantity bool) (*column, error) {
	s, err := readerOf(t.resource, path, quantity, t.redacted)
	if err != nil {
		return nil, err
	}
	if t.columns == nil {
		return t.frame.column(t.ctx, s, nil)
	}
	acquire := func() (leave func(), err error) { return t.columns.building.take(t.ctx, t.user) }
	return t.columns.obtain(t.ctx, t.frame.content, s, time.Now(), acquire, func(base *column) (*column, error) {
		return t.frame.column(t.ctx, s, base)
	})
}

// Where drops the rows for which the condition does not hold at a point in time.
func (t *ResultSet) Where(condition *Condition, at time.Time) error {
	col, err := t.column(condition.Path, false)
	if err != nil {
		return err
	}
	looking := store.Cancellation{Context: t.ctx}
	passes := make([]bool, len(col.values)+1) // by code
	passes[0] = condition.Matches(Value{}, at)
	for i, value := range col.values {
		if looking.Requested() {
			return t.ctx.Err()
		}
		passes[i+1] = condition.Matches(value, at)
	}
	t.rows.filter(func(at int32) bool { return passes[col.codes[at]] })
	return nil
}

// Sorted returns the rows [from, to) in the order of the keys.
func (t *ResultSet) Sorted(keys []Key, from, to int) ([]int32, error) {
	if from == to {
		return nil, nil
	}
	if len(keys) == 0 {
		return t.rows.list()[from:to], nil
	}
	if t.columns == nil || t.rows.len() < len(t.frame.objs)/16 {
		by, err := t.sortKeys(keys)
		if err != nil {
			return nil, err
		}
		return by.sort(t.rows.list())[from:to], nil
	}
	order, err := t.order(keys)
	if err != nil || t.rows.len() == len(order) {
		return order[min(from, len(order)):min(to, len(order))], err
	}
	among := make([]bool, len(order))
	t.rows.each(func(at int32) { among[at] = true })
	page := make([]int32, 0, to-from)
	for _, at := range order {
		if !among[at] {
			continue
		}
		if from--; from < 0 {
			page = append(page, at)
		}
		if len(page) == cap(page) {
			break
		}
	}
	return page, nil
}

// order returns all positions in the order of the keys.
func (t *ResultSet) order(keys []Key) ([]int32, error) {
	name := "order"
	if t.redacted {
		name = "redacted order"
	}
	for _, key := range keys {
		name += fmt.Sprintf(" %s %t %t", key.Path, key.Quantity, key.Descending)
	}
	col, err := t.columns.obtain(t.ctx, t.frame.content, valueReader{name: name}, time.Now(), nil, func(base *column) (*column, error) {
		by, err := t.sortKeys(keys)
		if err != nil {
			return nil, err
		}
		order := by.order(t.frame, base)
		return &column{frame: t.frame, order: order, bytes: int64(len(order)) * 4}, nil
	})
	if err != nil {
		return nil, err
	}
	return col.order, nil
}

// sortKeys returns the columns of the keys.
func (t *ResultSet) sortKeys(keys []Key) (by sortKeys, err error) {
	by = make(sortKeys, len(keys))
	for i, key := range keys {
		by[i].descending = key.Descending
		if by[i].column, err = t.column(key.Path, key.Quantity); err != nil {
			return nil, err
		}
	}
	return by, nil
}

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
	unchanged, to := order[len(fresh):], 0
	for _, at := range fresh {
		n, _ := slices.BinarySearchFunc(unchanged, at, by.compare)
		to += copy(order[to:], unchanged[:n])
		order[to] = at
		to++
		unchanged = unchanged[n:]
	}
	return order
}
