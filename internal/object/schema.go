package object

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// The field labels that every schema knows without listing them in Fields.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// Schema tells how objects of one resource are scanned: which selectable fields
// they have besides metadata.name and metadata.namespace. Make one per
// collection with SchemaFor, CustomSchema or DefaultSchema.
// A Schema is immutable for its users and safe for concurrent use; inside it
// keeps a bounded table of strings that its objects share.
type Schema struct {
	// Fields names the selectable fields, as field selectors spell them after
	// CanonicalField.
	Fields []string
	// contains more, unexported
	schemaDetail
}

type schemaDetail struct {
	specs []fieldSpec // parallel to Fields
	slots int         // values that a scan collects: one per path
	json  *jsonNode
	proto *protoNode
	// aliases maps other spellings to the canonical label.
	aliases map[string]string
	// noNamespace: metadata.namespace is no field label of this resource.
	noNamespace bool
	// used is set by the first object with strings to share.
	used     atomic.Bool
	interner atomic.Pointer[interner]
	scans    sync.Pool // of *scan
}

// fieldSpec is one selectable field: where its value is and what stands for a
// value that is absent.
type fieldSpec struct {
	label string
	// json and proto are the paths of the value; nil means that upstream knows
	// the label but gives it no value, so that it is always "".
	json  []string
	proto []protowire.Number
	kind  valueKind
	// elseJSON and elseProto are read when the first path gives "".
	elseJSON  []string
	elseProto []protowire.Number

	slot, elseSlot int
}

// valueKind says how a protobuf value is written as text, and what a missing
// value reads. JSON tokens name their kind themselves.
type valueKind uint8

const (
	stringValue valueKind = iota
	boolValue
	intValue
)

// zero is the text of a value that is not there.
func (k valueKind) zero() string {
	switch k {
	case boolValue:
		return "false"
	case intValue:
		return "0"
	default:
		return ""
	}
}

const noSlot = -1

// jsonNode is one object level on the way to selectable fields.
type jsonNode struct {
	key      string
	slot     int
	children []*jsonNode
}

func (n *jsonNode) find(key []byte) *jsonNode {
	if n == nil {
		return nil
	}
	for _, c := range n.children {
		if c.key == string(key) {
			return c
		}
	}
	return nil
}

// protoNode is one message level on the way to selectable fields.
type protoNode struct {
	num      protowire.Number
	slot     int
	kind     valueKind
	children []*protoNode
}

func (n *protoNode) find(num protowire.Number) *protoNode {
	if n == nil {
		return nil
	}
	for _, c := range n.children {
		if c.num == num {
			return c
		}
	}
	return nil
}

// DefaultSchema is the schema of a resource without selectable fields of its
// own: metadata.name and metadata.namespace only.
func DefaultSchema() *Schema { return newSchema(nil, nil, false) }

func newSchema(specs []fieldSpec, aliases map[string]string, noNamespace bool) *Schema {
	s := &Schema{schemaDetail: schemaDetail{
		specs: specs, aliases: aliases, noNamespace: noNamespace,
		json: &jsonNode{slot: noSlot}, proto: &protoNode{slot: noSlot},
	}}
	for i := range specs {
		f := &specs[i]
		s.Fields = append(s.Fields, f.label)
		f.slot = s.addPath(f.json, f.proto, f.kind)
		f.elseSlot = s.addPath(f.elseJSON, f.elseProto, f.kind)
	}
	return s
}

// addPath enters a value's paths into the trees and returns its slot.
func (s *Schema) addPath(json []string, proto []protowire.Number, kind valueKind) int {
	if json == nil {
		return noSlot
	}
	jn := s.json
	for _, key := range json {
		next := jn.find([]byte(key))
		if next == nil {
			next = &jsonNode{key: key, slot: noSlot}
			jn.children = append(jn.children, next)
		}
		jn = next
	}
	pn := s.proto
	for _, num := range proto {
		next := pn.find(num)
		if next == nil {
			next = &protoNode{num: num, slot: noSlot}
			pn.children = append(pn.children, next)
		}
		pn = next
	}
	if jn.slot != noSlot { // two labels of one value share its slot
		return jn.slot
	}
	jn.slot = s.slots
	if proto != nil {
		pn.slot, pn.kind = s.slots, kind
	}
	s.slots++
	return jn.slot
}

// ClusterScoped returns the schema for a resource whose field selectors refuse
// metadata.namespace, as those of cluster-scoped custom resources do.
func (s *Schema) ClusterScoped() *Schema {
	return newSchema(append([]fieldSpec(nil), s.specs...), s.aliases, true)
}

// CanonicalField says whether a field selector of this resource may name label,
// and under which name its value is kept: metadata.name, metadata.namespace or
// one of Fields (pods: spec.host is spec.nodeName). With ok=false the upstream
// refuses the selector, or kubeweir cannot read the field: forward the request.
func (s *Schema) CanonicalField(label string) (canonical string, ok bool) {
	switch label {
	case fieldName:
		return label, true
	case fieldNamespace:
		return label, !s.noNamespace
	}
	if c, found := s.aliases[label]; found {
		return c, true
	}
	if s.fieldIndex(label) >= 0 {
		return label, true
	}
	return "", false
}

// fieldIndex is the position of a canonical label in Fields, -1 when absent.
func (s *Schema) fieldIndex(label string) int {
	for i, f := range s.Fields {
		if f == label {
			return i
		}
	}
	return -1
}

// strings returns the table of shared strings. It is made when the second object
// comes (nil before): most resources of a cluster have no objects, and a schema
// made to decode one object has nothing to share.
func (s *Schema) strings() *interner {
	if t := s.interner.Load(); t != nil {
		return t
	}
	if !s.used.Swap(true) {
		return nil
	}
	s.interner.CompareAndSwap(nil, newInterner())
	return s.interner.Load()
}
