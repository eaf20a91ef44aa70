package query

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// column holds the values at one path of all objects of a frame. It stores each distinct value
// once, in order. Sorting is therefore counting, and a condition is evaluated once per value,
// however many objects have it. It is immutable.
type column struct {
	// codes are by position: 0 for no value, or 1 + the index of the value in values.
	codes []uint32
	// values are ascending and distinct.
	values []Value
	// unused is an upper bound of how many values no object has any more.
	unused int
	// order is, if the column is an order, all positions in that order.
	order []int32
	// bytes is the size of the column, valueBytes that of values.
	bytes, valueBytes int64
}

// withValues returns a column of codes and values.
func withValues(codes []uint32, values []Value) *column {
	c := &column{codes: codes, values: values}
	for i := range values {
		c.valueBytes += int64(unsafe.Sizeof(values[i])) + int64(len(values[i].Text))
	}
	c.bytes = int64(len(codes))*4 + c.valueBytes
	return c
}

// withOrder returns an order.
func withOrder(order []int32) *column { return &column{order: order, bytes: int64(len(order)) * 4} }

// valueReader reads the values of a column.
type valueReader struct {
	name string
	// token returns the JSON of an object's value, or nil for none. read parses it.
	token func(*object.Object) ([]byte, error)
	read  func(token []byte) Value
}

// redacted returns a reader of redacted objects. Objects are redacted while the column is made and
// are not kept, because users with a redacted view seldom query more than metadata.
func (s valueReader) redacted(res *source.Resource) valueReader {
	token := s.token
	s.name = "redacted " + s.name // no path is spelled so
	s.token = func(o *object.Object) ([]byte, error) {
		o, err := o.Redacted(res.HoldsSecrets())
		if err != nil {
			return nil, err
		}
		return token(o)
	}
	return s
}

// plainlyMetadata reports whether a path leads to metadata that is never redacted and cheap to
// find.
func plainlyMetadata(p Path) bool {
	steps := p.steps
	if len(steps) < 2 || steps[0].Kind != json.Member || steps[0].Name != "metadata" || steps[1].Kind != json.Member {
		return false
	}
	switch steps[1].Name {
	case "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "labels":
		return true
	}
	return false
}

// Check returns a 400 if a path of the query names a column that the resource's Table does not have.
func (q *Query) Check(res *source.Resource) error {
	check := func(parameter api.QueryParameter, path Path) error {
		if _, err := readerOf(res, path, false); err != nil {
			return BadRequest(parameter, err)
		}
		return nil
	}
	for _, key := range q.Sort {
		if err := check(api.QuerySortBy, key.Path); err != nil {
			return err
		}
	}
	for i := range q.Where {
		if err := check(api.QueryWhere, q.Where[i].Path); err != nil {
			return err
		}
	}
	for _, path := range q.CountBy {
		if err := check(api.QueryCountBy, path); err != nil {
			return err
		}
	}
	return nil
}

// readerOf returns the reader of the values at a path. The error says that the resource has no such
// column.
func readerOf(res *source.Resource, p Path, quantity bool) (s valueReader, err error) {
	s = valueReader{name: p.String(), read: ValueOf}
	if p.column {
		s.name = "column " + p.text // neither a path nor an order is spelled so
		s.read = ValueOfCell
		if s.token, err = cellOf(res, p.text); err != nil {
			return s, err
		}
	} else {
		s.token = tokenAt(p.steps)
	}
	if quantity {
		read := s.read
		s.name += ":quantity"
		s.read = func(token []byte) Value { return read(token).AsQuantity() }
	}
	return s, nil
}

// cellOf returns a reader of the cells of a column of the resource's Table. name is in lower case.
func cellOf(res *source.Resource, name string) (func(*object.Object) ([]byte, error), error) {
	if res.Printer == nil || res.Printer.Traits().NoTables {
		return nil, fmt.Errorf("column %[2]q: %[1]s has no Tables: use a path, such as .metadata.name", res.Resource, name)
	}
	var columns []metav1.TableColumnDefinition
	if err := stdjson.Unmarshal(res.Printer.Columns(), &columns); err != nil {
		return nil, fmt.Errorf("reading columns: %w", err)
	}
	i := slices.IndexFunc(columns, func(c metav1.TableColumnDefinition) bool { return strings.EqualFold(c.Name, name) })
	switch {
	case i < 0:
		names := make([]string, len(columns))
		for i := range columns {
			names[i] = columns[i].Name
		}
		return nil, fmt.Errorf("the Table of %s has no column %q: use a path, such as .metadata.name, or one of the columns %s", res.Resource, name, strings.Join(names, ", "))
	case columns[i].Format == "name":
		return tokenAt([]json.Step{{Name: "metadata"}, {Name: "name"}}), nil
	case name == "age" && !res.Custom: // without printing the row
		return func(o *object.Object) (token []byte, err error) {
			if o.CreationUnix != 0 {
				token = AgeToken(o.CreationUnix)
			}
			return token, nil
		}, nil
	}
	return func(o *object.Object) ([]byte, error) {
		row, err := res.Printer.Row(o.Raw)
		if err != nil {
			return nil, fmt.Errorf("printing %s: %w", o.Key, err)
		}
		token, moment, relative := row.Cell(i)
		if relative {
			token = AgeToken(moment)
		}
		return token, nil
	}, nil
}

// tokenAt returns a reader of the value at a path. It finds metadata without parsing what precedes
// it.
func tokenAt(steps []json.Step) func(*object.Object) ([]byte, error) {
	if steps[0].Kind == json.Member && steps[0].Name == "metadata" && len(steps) > 1 {
		return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Metadata(), steps[1:]), nil }
	}
	return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Raw, steps), nil }
}

// longToken is the size in bytes above which a token is recognized by its value alone, because a
// token may be as large as its object.
const longToken = 256

// buildColumn makes a column from all objects. It stops early when ctx ends.
func buildColumn(ctx context.Context, objs []*object.Object, s valueReader) (*column, error) {
	looking := store.NewCancellation(ctx)
	codes := make([]uint32, len(objs))
	seen := make(map[string]uint32)
	long := make(map[Value]uint32) // long tokens, by value
	var values []Value
	add := func(value Value) (code uint32) {
		if value.Kind == None {
			return 0
		}
		values = append(values, value)
		return uint32(len(values))
	}
	for i, o := range objs {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		token, err := s.token(o)
		if err != nil {
			return nil, err
		}
		if len(token) > longToken {
			value := s.read(token)
			if codes[i] = long[value]; codes[i] == 0 {
				codes[i] = add(value)
				long[value] = codes[i]
			}
			continue
		}
		code, known := seen[string(token)]
		if !known {
			code = add(s.read(token))
			seen[string(token)] = code
		}
		codes[i] = code
	}
	return sortedColumn(codes, values), nil
}

// sortedColumn returns a column of codes for values that are in any order and not distinct.
func sortedColumn(codes []uint32, values []Value) *column {
	recoded := make([]uint32, len(values)+1)
	sorted := make([]Value, 0, len(values))
	for _, i := range sortedPlaces(values) {
		if n := len(sorted); n == 0 || Compare(sorted[n-1], values[i]) != 0 {
			sorted = append(sorted, values[i])
		}
		recoded[i+1] = uint32(len(sorted))
	}
	for i, code := range codes {
		codes[i] = recoded[code]
	}
	return withValues(codes, slices.Clip(sorted))
}

// sortedPlaces returns the indexes of values in the order of the values.
func sortedPlaces(values []Value) []uint32 {
	order := make([]uint32, len(values))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return Compare(values[a], values[b]) })
	return order
}

// passing returns, by code, whether the condition holds for the value at a point in time.
func (c *column) passing(ctx context.Context, where *Condition, at time.Time) ([]bool, error) {
	looking := store.NewCancellation(ctx)
	passes := make([]bool, len(c.values)+1)
	passes[0] = where.Matches(Value{}, at)
	for i := range c.values {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		passes[i+1] = where.Matches(c.values[i], at)
	}
	return passes, nil
}

// place returns the rank of the values with a code, from 0 on. Objects without a value come last.
func (c *column) place(code uint32, descending bool) uint32 {
	last := uint32(len(c.values))
	switch {
	case code == 0:
		return last
	case descending:
		return last - code
	}
	return code - 1
}

// sortBy sorts positions by the column. The sort is stable.
func (c *column) sortBy(positions []int32, descending bool) []int32 {
	starts := make([]int32, len(c.values)+2)
	for _, at := range positions {
		starts[c.place(c.codes[at], descending)+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	sorted := make([]int32, len(positions))
	for _, at := range positions {
		place := c.place(c.codes[at], descending)
		sorted[starts[place]] = at
		starts[place]++
	}
	return sorted
}
