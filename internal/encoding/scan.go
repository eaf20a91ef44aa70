package encoding

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Scan is one run over one object's bytes: what to look for and what was found, as
// slices of the bytes where no escape stood in the way. Missing is nil. A Scan is of one
// goroutine and may be used again after Reset.
type Scan struct {
	Encoded
	// Fields is the root of the fields to look for besides metadata.
	Fields *Field
	// Values are the texts of the fields, by Field.Slot.
	Values [][]byte

	Name, Namespace, UID, ResourceVersion []byte
	// Creation is metadata.creationTimestamp in seconds since 1970, 0 without one.
	Creation int64
	// Labels are in the order of the object, in which a key may be repeated.
	Labels []Label
	// ListOffset is, in JSON, where the form inside a typed list begins; see the
	// function Item of package json.
	ListOffset int

	// At, Member, Text and Err are the codec's while it scans: where it is among the
	// fields, where the member begins that it is at, the values that Raw holds in
	// another form, a fault of the content (as opposed to one of the syntax).
	At     *Field
	Member int
	Text   []byte
	Err    error
}

// Label is one label as it was found.
type Label struct{ Key, Value []byte }

// Reset forgets everything that points into Raw. Fields and the room for what is found
// stay.
func (s *Scan) Reset() {
	clear(s.Labels[:cap(s.Labels)])
	clear(s.Values)
	*s = Scan{Fields: s.Fields, Values: s.Values, Labels: s.Labels[:0], Text: s.Text[:0]}
}

// NoSlot is the Slot of a Field that is only on the way to others.
const NoSlot = -1

// Field is one level on the way to the fields that a scan looks for.
type Field struct {
	// Name is what JSON calls it, Number what protobuf does; 0 for what has none.
	Name   string
	Number protowire.Number
	// Slot is where Scan.Values has its value; Kind says what that is.
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

// Kind says how a field's value is written as text where the encoding does not: JSON
// tokens name their kind themselves.
type Kind uint8

// The kinds of fields.
const (
	String Kind = iota
	Bool
	Int
)

// Zero is the text of a value that is not there.
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

// Errors of objects that are not as they must be.
var (
	ErrNoMetadata = errors.New("metadata is missing")
	ErrNoVersion  = errors.New("metadata.resourceVersion is missing")
)
