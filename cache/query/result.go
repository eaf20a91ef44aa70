package query

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
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
	groups, without = col.groups(&t.rows)
	return groups, without, nil
}

// column returns the values at a path.
func (t *ResultSet) column(path Path, quantity bool) (*column, error) {
	s, err := readerOf(t.resource, path, quantity)
	if err != nil {
		return nil, err
	}
	if t.redacted && !plainlyMetadata(path) {
		s = s.redacted(t.resource)
	}
	if t.columns == nil {
		return buildColumn(t.ctx, t.frame.objs, s)
	}
	turn := func() (leave func(), err error) { return t.columns.building.take(t.ctx, t.user) }
	return t.columns.obtain(t.ctx, t.frame, s, turn, func(base *madeColumn) (*column, error) {
		if base != nil {
			return carry(t.ctx, base.column, changeOf(base.frame.objs, t.frame.objs), t.frame.objs, s)
		}
		return buildColumn(t.ctx, t.frame.objs, s)
	})
}

// Where drops the rows for which the condition does not hold at a point in time.
func (t *ResultSet) Where(condition *Condition, at time.Time) error {
	col, err := t.column(condition.Path, false)
	if err != nil {
		return err
	}
	passes, err := col.passing(t.ctx, condition, at)
	if err != nil {
		return err
	}
	t.rows.keep(func(at int32) bool { return passes[col.codes[at]] })
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
		sorted, err := t.sort(keys, t.rows.list())
		if err != nil {
			return nil, err
		}
		return sorted[from:to], nil
	}
	order, err := t.order(keys)
	if err != nil || t.rows.len() == len(order) {
		return order[min(from, len(order)):min(to, len(order))], err
	}
	among := make([]bool, len(order))
	t.rows.each(func(at int32) { among[at] = true })
	page := make([]int32, 0, to-from)
	n := 0
	for _, at := range order {
		if !among[at] {
			continue
		}
		if n >= from {
			page = append(page, at)
		}
		if n++; n == to {
			break
		}
	}
	return page, nil
}

// sort sorts positions by the keys, beginning with the last one.
func (t *ResultSet) sort(keys []Key, positions []int32) ([]int32, error) {
	for _, key := range slices.Backward(keys) {
		col, err := t.column(key.Path, key.Quantity)
		if err != nil {
			return nil, err
		}
		if len(positions) < len(col.values)/4 {
			slices.SortStableFunc(positions, func(a, b int32) int {
				return int(col.place(col.codes[a], key.Descending)) - int(col.place(col.codes[b], key.Descending))
			})
		} else {
			positions = col.sortBy(positions, key.Descending)
		}
	}
	return positions, nil
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
	col, err := t.columns.obtain(t.ctx, t.frame, valueReader{name: name}, nil, func(base *madeColumn) (*column, error) {
		var order []int32
		var err error
		if base == nil {
			order, err = t.sortAll(keys)
		} else {
			order, err = t.carryOrder(keys, base)
		}
		if err != nil {
			return nil, err
		}
		return withOrder(order), nil
	})
	if err != nil {
		return nil, err
	}
	return col.order, nil
}

// sortAll sorts all positions by the keys.
func (t *ResultSet) sortAll(keys []Key) ([]int32, error) {
	all := rows{to: len(t.frame.objs)}
	return t.sort(keys, all.list())
}

// groups returns how many rows have each value, by its text, and how many have none.
func (c *column) groups(r *rows) (groups map[string]int, without int) {
	counts := make([]int, len(c.values)+1)
	if r.isPicked {
		r.each(func(at int32) { counts[c.codes[at]]++ })
	} else {
		for _, code := range c.codes[r.from:r.to] {
			counts[code]++
		}
	}
	groups = make(map[string]int)
	for code, n := range counts {
		if n > 0 && code > 0 && len(groups) <= MaxGroups {
			groups[c.values[code-1].Text] += n
		}
	}
	return groups, counts[0]
}

// fewFresh is the maximum share of fresh objects that are inserted into an order one by one. With
// more of them, sorting all objects is cheaper.
const fewFresh = 1.0 / 16

// carryOrder makes an order from the order of the older frame by inserting the fresh objects.
func (t *ResultSet) carryOrder(keys []Key, base *madeColumn) ([]int32, error) {
	c := changeOf(base.frame.objs, t.frame.objs)
	if float64(len(c.fresh)) > fewFresh*float64(len(t.frame.objs)) {
		return t.sortAll(keys)
	}
	fresh, err := t.sort(keys, c.fresh)
	if err != nil {
		return nil, err
	}
	before, err := t.before(keys)
	if err != nil {
		return nil, err
	}
	// The common objects move to the end of what becomes the order, and from there, in runs, to
	// their places.
	order := c.move(make([]int32, len(fresh), len(t.frame.objs)), base.order)
	kept, to := order[len(fresh):], 0
	for _, at := range fresh {
		n := sort.Search(len(kept), func(i int) bool { return before(at, kept[i]) })
		to += copy(order[to:], kept[:n])
		order[to] = at
		to++
		kept = kept[n:]
	}
	return order, nil
}

// before returns a function that compares two positions by the keys.
func (t *ResultSet) before(keys []Key) (func(a, b int32) bool, error) {
	cols := make([]*column, len(keys))
	for i, key := range keys {
		var err error
		if cols[i], err = t.column(key.Path, key.Quantity); err != nil {
			return nil, err
		}
	}
	return func(a, b int32) bool {
		for i, col := range cols {
			x, y := col.place(col.codes[a], keys[i].Descending), col.place(col.codes[b], keys[i].Descending)
			if x != y {
				return x < y
			}
		}
		return a < b
	}, nil
}
