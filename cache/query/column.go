package query

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/object"
)

// column holds the values at one path of all objects of a frame. It stores each distinct value
// once, in order. Sorting is therefore counting, and a condition is evaluated once per value,
// however many objects have it. It is immutable.
type column struct {
	frame *frame
	// codes are by position: 0 for no value, or 1 + the index of the value in values.
	codes []uint32
	// values are ascending and distinct.
	values []Value
	// order is, if the column is an order, all positions in that order.
	order []int32
	// bytes is the size of the column.
	bytes int64
}

// valueReader reads the values of a column.
type valueReader struct {
	name string
	// token returns the JSON of an object's value, or nil for none. read parses it.
	token func(*object.Object) ([]byte, error)
	read  func(token []byte) Value
}

// plainlyMetadata reports whether a path leads to metadata that is never redacted and cheap to
// find.
func plainlyMetadata(p Path) bool {
	steps := inMetadata(p.steps)
	if steps == nil || steps[0].Kind != json.Member {
		return false
	}
	switch steps[0].Name {
	case "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "labels":
		return true
	}
	return false
}

// inMetadata returns the rest of a path to a member of metadata, else nil.
func inMetadata(steps []json.Step) []json.Step {
	if len(steps) > 1 && steps[0] == (json.Step{Kind: json.Member, Name: "metadata"}) {
		return steps[1:]
	}
	return nil
}

// Check returns a 400 if a path of the query names a column that the resource's Table does not
// have.
func (q *Query) Check(res *source.Resource) (err error) {
	check := func(parameter api.QueryParameter, path Path) {
		if _, unknown := readerOf(res, path, false, false); unknown != nil && err == nil {
			err = BadRequest(parameter, unknown)
		}
	}
	for _, key := range q.Sort {
		check(api.QuerySortBy, key.Path)
	}
	for _, condition := range q.Where {
		check(api.QueryWhere, condition.Path)
	}
	for _, path := range q.CountBy {
		check(api.QueryCountBy, path)
	}
	return err
}

// readerOf returns the reader of the values at a path, of redacted objects if redacted is set.
// These are made while the column is and are not kept, because users with a redacted view seldom
// query more than metadata. The error says that the resource has no such column.
func readerOf(res *source.Resource, p Path, quantity, redacted bool) (s valueReader, err error) {
	s = valueReader{name: p.String(), read: ValueOf}
	if p.isColumn {
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
	if redacted && !plainlyMetadata(p) {
		token := s.token
		s.name = "redacted " + s.name // no path is spelled so
		s.token = func(o *object.Object) ([]byte, error) {
			o, err := o.Redacted(res.HoldsSecrets())
			if err != nil {
				return nil, err
			}
			return token(o)
		}
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
	names := make([]string, len(columns))
	for i := range columns {
		names[i] = columns[i].Name
	}
	i := slices.IndexFunc(names, func(column string) bool { return strings.EqualFold(column, name) })
	switch {
	case i < 0:
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
	if rest := inMetadata(steps); rest != nil {
		return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Metadata(), rest), nil }
	}
	return func(o *object.Object) ([]byte, error) { return json.Lookup(o.Raw, steps), nil }
}

// longToken is the size in bytes above which a token is recognized by its value alone, because a
// token may be as large as its object.
const longToken = 256

// column returns the column of f for the values that s reads. It updates base, the column of an older
// frame, or reads all objects if base is nil. It returns early when ctx ends.
func (f *frame) column(ctx context.Context, s valueReader, base *column) (*column, error) {
	if base == nil {
		base = &column{frame: &frame{}}
	}
	looking := store.Cancellation{Context: ctx}
	c := changeOf(base.frame.objs, f.objs)
	codes := make([]uint32, len(f.objs))
	for _, r := range c.same {
		copy(codes[r.after:r.after+r.n], base.codes[r.before:])
	}
	var fresh []Value // their codes follow those of base.values
	codeOf := func(value Value) uint32 {
		if value.Kind == None {
			return 0
		}
		if place, known := slices.BinarySearchFunc(base.values, value, Compare); known {
			return uint32(place + 1)
		}
		fresh = append(fresh, value)
		return uint32(len(base.values) + len(fresh))
	}
	seen := make(map[string]uint32)
	long := make(map[Value]uint32) // long tokens, by value
	for _, at := range c.fresh {
		if looking.Requested() {
			return nil, ctx.Err()
		}
		token, err := s.token(f.objs[at])
		if err != nil {
			return nil, err
		}
		if len(token) > longToken {
			value := s.read(token)
			if codes[at] = long[value]; codes[at] == 0 {
				codes[at] = codeOf(value)
				long[value] = codes[at]
			}
			continue
		}
		code, known := seen[string(token)]
		if !known {
			code = codeOf(s.read(token))
			seen[string(token)] = code
		}
		codes[at] = code
	}
	if len(fresh) == 0 && unusedValues(codes, len(base.values)) <= len(base.values)/8+16 {
		// A few values that no object has any more may remain until there are new ones.
		bytes := base.bytes + int64(len(codes)-len(base.codes))*4
		return &column{frame: f, codes: codes, values: base.values, bytes: bytes}, nil
	}
	return f.newColumn(codes, base.values, fresh), nil
}

// unusedValues returns how many of n values no code refers to, or 0 if there are too few values for
// this to matter.
func unusedValues(codes []uint32, n int) (unused int) {
	if n <= 16 {
		return 0
	}
	used, unused := make([]bool, 1+n), n
	for _, code := range codes {
		if code > 0 && !used[code] {
			used[code] = true
			unused--
		}
	}
	return unused
}

// newColumn returns a column of codes that refer to values, which are ascending and distinct, and
// to fresh after them, which are in any order, not distinct, and not in values. It drops the values
// that no object has. It changes codes.
func (f *frame) newColumn(codes []uint32, values, fresh []Value) *column {
	recoded := make([]uint32, 1+len(values)+len(fresh)) // by code, at first 1 for those in use
	for _, code := range codes {
		recoded[code] = 1
	}
	recoded[0] = 0
	c := &column{frame: f, codes: codes, values: make([]Value, 0, len(values)+len(fresh))}
	at := 0
	take := func(upTo int) { // of values
		for ; at < upTo; at++ {
			if recoded[at+1] > 0 {
				c.values = append(c.values, values[at])
				recoded[at+1] = uint32(len(c.values))
			}
		}
	}
	order := make([]uint32, len(fresh)) // of fresh, by value
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return Compare(fresh[a], fresh[b]) })
	for _, i := range order {
		place, _ := slices.BinarySearchFunc(values[at:], fresh[i], Compare)
		take(at + place)
		if n := len(c.values); n == 0 || Compare(c.values[n-1], fresh[i]) != 0 {
			c.values = append(c.values, fresh[i])
		}
		recoded[1+len(values)+int(i)] = uint32(len(c.values))
	}
	take(len(values))
	for i, code := range codes {
		codes[i] = recoded[code]
	}
	c.values = slices.Clip(c.values)
	c.bytes = int64(len(codes)) * 4
	for i := range c.values {
		c.bytes += int64(unsafe.Sizeof(c.values[i])) + int64(len(c.values[i].Text))
	}
	return c
}
