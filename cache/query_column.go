package cache

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/listquery"
	"github.com/kubeweir/kubeweir/object"
)

// column is the values at one path of the objects of a frame. Each different value stands
// in it once, in order, so that to sort is to count, and a condition is asked of each value
// once, however many objects have it. It is immutable.
type column struct {
	// codes are, by position, 0 for no value, or 1 + the place of the value in values.
	codes []uint32
	// values rise; no two are equal.
	values []listquery.Value
	// unused is how many of the values no object has any more, at most.
	unused int
	// order is, of an order instead, the positions in that order.
	order []int32
	// bytes is what all of it has, valueBytes what values have.
	bytes, valueBytes int64
}

// withValues is a column of codes and values.
func withValues(codes []uint32, values []listquery.Value) *column {
	c := &column{codes: codes, values: values}
	for i := range values {
		c.valueBytes += int64(unsafe.Sizeof(values[i])) + int64(len(values[i].Text))
	}
	c.bytes = int64(len(codes))*4 + c.valueBytes
	return c
}

// withOrder is an order.
func withOrder(order []int32) *column { return &column{order: order, bytes: int64(len(order)) * 4} }

// valueReader reads the values of a column.
type valueReader struct {
	name string
	// token is the JSON of an object's value, nil for none; the Value of it is read's.
	token func(*object.Object) ([]byte, error)
	read  func(token []byte) listquery.Value
}

// redacted is s of redacted objects. They are redacted when a column is made of them, not
// kept: who may see a redacted view only, seldom asks for more than metadata.
func (s valueReader) redacted(res *source.Resource) valueReader {
	token := s.token
	s.name = "redacted " + s.name // as no path is spelled
	s.token = func(o *object.Object) ([]byte, error) {
		o, err := o.Redacted(res.HoldsSecrets())
		if err != nil {
			return nil, err
		}
		return token(o)
	}
	return s
}

// plainlyMetadata reports whether a path leads to what is never redacted, and found at once.
func plainlyMetadata(p listquery.Path) bool {
	steps := p.Steps()
	if len(steps) < 2 || steps[0].Kind != json.Member || steps[0].Name != "metadata" || steps[1].Kind != json.Member {
		return false
	}
	switch steps[1].Name {
	case "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "labels":
		return true
	}
	return false
}

// readerOf reads the values at a path; the error is that of a column which the
// resource does not have.
func readerOf(res *source.Resource, p listquery.Path, quantity bool) (s valueReader, err error) {
	s = valueReader{name: p.String(), read: listquery.ValueOf}
	if name, ok := p.Column(); ok {
		s.name = "column " + name // as no path is spelled, and no order named
		s.read = listquery.ValueOfCell
		if s.token, err = cellOf(res, name); err != nil {
			return s, err
		}
	} else {
		s.token = tokenAt(p.Steps())
	}
	if quantity {
		read := s.read
		s.name += ":quantity"
		s.read = func(token []byte) listquery.Value { return read(token).AsQuantity() }
	}
	return s, nil
}

// cellOf finds the cells of a column of the resource's Table, by its name in lower case.
func cellOf(res *source.Resource, name string) (func(*object.Object) ([]byte, error), error) {
	if res.Printer == nil || res.Printer.Traits().NoTables {
		return nil, fmt.Errorf("there are no Tables of %s, whose column %q could be: name a path, as .metadata.name is", res.Resource, name)
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
		return nil, fmt.Errorf("the Table of %s has no column %q: name a path, as .metadata.name is, or one of the columns %s", res.Resource, name, strings.Join(names, ", "))
	case columns[i].Format == "name":
		return tokenAt([]json.Step{{Name: "metadata"}, {Name: "name"}}), nil
	case name == "age" && !res.Custom: // need not be printed
		return func(o *object.Object) (token []byte, err error) {
			if o.CreationUnix != 0 {
				token = listquery.AgeToken(o.CreationUnix)
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
			token = listquery.AgeToken(moment)
		}
		return token, nil
	}, nil
}

// tokenAt finds the value at a path. Metadata is found without a look at what stands before
// it.
func tokenAt(steps []json.Step) func(*object.Object) ([]byte, error) {
	if steps[0].Kind == json.Member && steps[0].Name == "metadata" && len(steps) > 1 {
		return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Metadata(), steps[1:]), nil }
	}
	return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Raw, steps), nil }
}

// longToken is the size, in bytes, above which a token is not kept to know it again, but its
// value alone: a token may be as large as its object.
const longToken = 256

// buildColumn makes a column from all objects. It ends early, without one, when ctx does.
func buildColumn(ctx context.Context, objs []*object.Object, s valueReader) (*column, error) {
	looking := store.NewCancellation(ctx)
	codes := make([]uint32, len(objs))
	seen := make(map[string]uint32)
	long := make(map[listquery.Value]uint32) // what is long, by its value
	var values []listquery.Value
	add := func(value listquery.Value) (code uint32) {
		if value.Kind == listquery.None {
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

// sortedColumn makes a column of codes for values in any order, some of which may be equal.
func sortedColumn(codes []uint32, values []listquery.Value) *column {
	recoded := make([]uint32, len(values)+1)
	sorted := make([]listquery.Value, 0, len(values))
	for _, i := range sortedPlaces(values) {
		if n := len(sorted); n == 0 || listquery.Compare(sorted[n-1], values[i]) != 0 {
			sorted = append(sorted, values[i])
		}
		recoded[i+1] = uint32(len(sorted))
	}
	for i, code := range codes {
		codes[i] = recoded[code]
	}
	return withValues(codes, slices.Clip(sorted))
}

// sortedPlaces are the places of values in their order.
func sortedPlaces(values []listquery.Value) []uint32 {
	order := make([]uint32, len(values))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return listquery.Compare(values[a], values[b]) })
	return order
}

// passing are, by code, whether values are as the condition has them at a moment.
func (c *column) passing(ctx context.Context, where *listquery.Condition, at time.Time) ([]bool, error) {
	looking := store.NewCancellation(ctx)
	passes := make([]bool, len(c.values)+1)
	passes[0] = where.Matches(listquery.Value{}, at)
	for i := range c.values {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		passes[i+1] = where.Matches(c.values[i], at)
	}
	return passes, nil
}

// place is where values with a code come in an order, from 0 on; those without come last.
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

// sortBy orders positions by the column, and those of equal values as they are.
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
