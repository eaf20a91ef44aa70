package object

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeweir/kubeweir/encoding"
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
	specs []fieldSpec     // parallel to Fields
	root  *encoding.Field // of their paths
	slots int             // values that a scan collects: one per path
	// aliases maps other spellings to the canonical label.
	aliases map[string]string
	// noNamespace: metadata.namespace is no field label of this resource.
	noNamespace bool
	// dropManaged: objects are kept without their managedFields.
	dropManaged bool
	// used is set by the first object with strings to share.
	used     atomic.Bool
	interner atomic.Pointer[interner]
	scans    sync.Pool // of *scan
}

// fieldSpec is one selectable field: where its value is and what stands for a
// value that is absent.
type fieldSpec struct {
	label string
	// path and numbers are the way to the value, level by level; nil means that
	// upstream knows the label but gives it no value, so that it is always "".
	// Without numbers it is read in JSON only.
	path    []string
	numbers []protowire.Number
	kind    encoding.Kind
	// elsePath and elseNumbers are read when the first path gives "".
	elsePath    []string
	elseNumbers []protowire.Number
	// since is the minor release of Kubernetes 1 whose API servers have the label first,
	// 0 for those of every supported one.
	since int

	slot, elseSlot int
}

// DefaultSchema is the schema of a resource without selectable fields of its
// own: metadata.name and metadata.namespace only.
func DefaultSchema() *Schema { return newSchema(nil, nil, false) }

func newSchema(specs []fieldSpec, aliases map[string]string, noNamespace bool) *Schema {
	s := &Schema{schemaDetail: schemaDetail{
		specs: specs, aliases: aliases, noNamespace: noNamespace,
		root: &encoding.Field{Slot: encoding.NoSlot},
	}}
	for i := range specs {
		f := &specs[i]
		s.Fields = append(s.Fields, f.label)
		f.slot = s.addPath(f.path, f.numbers, f.kind)
		f.elseSlot = s.addPath(f.elsePath, f.elseNumbers, f.kind)
	}
	return s
}

// addPath enters a value's path into the tree and returns its slot.
func (s *Schema) addPath(path []string, numbers []protowire.Number, kind encoding.Kind) int {
	if path == nil {
		return encoding.NoSlot
	}
	f := s.root
	for i, name := range path {
		next := f.Named([]byte(name))
		if next == nil {
			next = &encoding.Field{Name: name, Slot: encoding.NoSlot}
			if i < len(numbers) {
				next.Number = numbers[i]
			}
			f.Children = append(f.Children, next)
		}
		f = next
	}
	if f.Slot == encoding.NoSlot { // two labels of one value share its slot
		f.Slot, f.Kind = s.slots, kind
		s.slots++
	}
	return f.Slot
}

// ClusterScoped returns the schema for a resource whose field selectors refuse
// metadata.namespace, as those of cluster-scoped custom resources do.
func (s *Schema) ClusterScoped() *Schema {
	return newSchema(append([]fieldSpec(nil), s.specs...), s.aliases, true)
}

// WithoutManagedFields returns a schema whose objects are kept without their
// managedFields: what Decode returns are not the bytes that it was given.
func (s *Schema) WithoutManagedFields() *Schema {
	c := newSchema(append([]fieldSpec(nil), s.specs...), s.aliases, s.noNamespace)
	c.dropManaged = true
	return c
}

// DropsManagedFields reports whether objects are kept without their managedFields.
func (s *Schema) DropsManagedFields() bool { return s.dropManaged }

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

// Since is the minor release of Kubernetes 1 whose API servers are the first to have all
// labels of a selector that CanonicalField has; 0 for every supported one.
func (s *Schema) Since(selector fields.Selector) int {
	newest := 0
	for _, r := range selector.Requirements() {
		label, _ := s.CanonicalField(r.Field)
		if i := s.fieldIndex(label); i >= 0 {
			newest = max(newest, s.specs[i].since)
		}
	}
	return newest
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
