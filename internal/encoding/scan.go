package encoding

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Scan is one scan of an object's bytes: what to look for and what was found, as slices of the
// bytes unless they contained escapes. Missing values are nil. A Scan belongs to one goroutine and
// may be reused after Reset.
type Scan struct {
	Encoded
	// Fields is the root of the fields to find besides metadata.
	Fields *Field
	// Values are the texts of the fields, by Field.Slot.
	Values [][]byte

	Name, Namespace, UID, ResourceVersion []byte
	// Creation is metadata.creationTimestamp in seconds since 1970, 0 without one.
	Creation int64
	// Labels are in the object's order and may contain repeated keys.
	Labels []Label
	// ListOffset is, in JSON, where the form used in typed lists begins; see the function Item of
	// package json.
	ListOffset int

	// At, Member, Text and Err are the codec's state during the scan: the current level of fields,
	// where the current member begins, the values that Raw has in another form, an error in the
	// content (not in the syntax).
	At     *Field
	Member int
	Text   []byte
	Err    error
}

// Label is one label of a scanned object.
type Label struct{ Key, Value []byte }

// Reset drops everything that points into Raw. It retains Fields and allocated memory.
func (s *Scan) Reset() {
	clear(s.Labels[:cap(s.Labels)])
	clear(s.Values)
	*s = Scan{Fields: s.Fields, Values: s.Values, Labels: s.Labels[:0], Text: s.Text[:0]}
}

// NoSlot is the Slot of a Field that only leads to others.
const NoSlot = -1

// Field is one level of the paths to the fields that a scan looks for.
type Field struct {
	// Name is the field's name in JSON, Number its number in protobuf; 0 if it has none.
	Name   string
	Number protowire.Number
	// Slot is the index of its value in Scan.Values. Kind says how to read the value.
	Slot     int
	Kind     Kind
	Children []*Field
}

// Named returns the child of that name, nil if there is none.
func (f *Field) Named(name []byte) *Field {
	if f == nil {
		return nil
	}
	for _, c := range f.Children {
		if c.Name == string(name) {
			return c
		}
	}
	return nil
}

// Numbered returns the child of that number, nil if there is none.
func (f *Field) Numbered(number protowire.Number) *Field {
	if f == nil {
		return nil
	}
	for _, c := range f.Children {
		if c.Number == number {
			return c
		}
	}
	return nil
}

// Kind describes how to write a field's value as text if the encoding does not. JSON tokens are
// self-describing.
type Kind uint8

// The kinds of fields.
const (
	String Kind = iota
	Bool
	Int
)

// Zero returns the text of a missing value.
func (k Kind) Zero() string {
	switch k {
	case Bool:
		return "false"
	case Int:
		return "0"
	default:
		return ""
	}
}

// Errors of objects with missing or invalid content.
var (
	ErrNoMetadata = errors.New("metadata is missing")
	ErrNoVersion  = errors.New("metadata.resourceVersion is missing")
)
