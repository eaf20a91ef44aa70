package object

import (
	"hash/maphash"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Field labels that every schema has without listing them in Fields.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// Schema describes how to scan objects of one resource: which selectable fields they have besides
// metadata.name and metadata.namespace. Create one per collection with SchemaFor or CustomSchema. A
// Schema is immutable and safe for concurrent use. Internally, it has a bounded table of strings
// that its objects share.
type Schema struct {
	// Fields names the selectable fields, as field selectors spell them after CanonicalField.
	Fields []string
	// DropsManagedFields is true if objects are stored without their managedFields.
	DropsManagedFields bool

	specs []fieldSpec     // parallel to Fields
	root  *encoding.Field // the tree of their paths
	slots int             // values that a scan collects: one per path
	// aliases maps other spellings to the canonical label.
	aliases map[string]string
	// noNamespace means that metadata.namespace is not a field label of this resource.
	noNamespace bool
	shared      func() *interner // returns the table of shared strings, created for the first object
	scans       sync.Pool        // of *scan
}

// fieldSpec is one selectable field: where its value is, and what replaces an absent one.
type fieldSpec struct {
	label string
	// path and numbers lead to the value, level by level. A nil path means that the upstream
	// accepts the label but has no value for it, so that it is always "". Without numbers the field
	// is read only in JSON.
	path    []string
	numbers []protowire.Number
	kind    encoding.Kind
	// or is the label of an earlier field that is read if the path yields "".
	or string
	// since is the first minor release of Kubernetes 1 whose API servers have the label, 0 if all
	// supported ones have it.
	since int

	slot, elseSlot int
}

// CustomSchema returns the schema of a custom resource with the jsonPaths of its CRD version's
// selectableFields (".spec.color"). Labels are the paths without the leading dot, values as
// apiextensions-apiserver computes them (pkg/registry/customresource/strategy.go): fmt.Sprint of
// the value, "" when it is missing or null. A path that is not a plain chain of names is left out,
// so that CanonicalField sends requests for it upstream. For a cluster-scoped resource use
// CustomSchema(paths).ClusterScoped().
func CustomSchema(paths []string) *Schema {
	var specs []fieldSpec
	for _, path := range paths {
		label := strings.TrimPrefix(path, ".")
		if label == path || !pathOfNames.MatchString(label) || slices.Contains(dotted(label), "metadata") {
			continue
		}
		specs = append(specs, fieldSpec{label: label, path: dotted(label)})
	}
	return newSchema(specs, nil, false)
}

// pathOfNames matches names joined by dots, without any of JSONPath's brackets, quotes, wildcards
// or escapes.
var pathOfNames = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func dotted(path string) []string { return strings.Split(path, ".") }

func newSchema(specs []fieldSpec, aliases map[string]string, noNamespace bool) *Schema {
	s := &Schema{
		specs: specs, aliases: aliases, noNamespace: noNamespace,
		root: &encoding.Field{Slot: encoding.NoSlot}, shared: sync.OnceValue(newInterner),
	}
	for i := range specs {
		f := &specs[i]
		s.Fields = append(s.Fields, f.label)
		f.slot = s.addPath(f.path, f.numbers, f.kind)
		f.elseSlot = encoding.NoSlot
		if i := slices.Index(s.Fields, f.or); i >= 0 {
			f.elseSlot = specs[i].slot
		}
	}
	return s
}

// addPath adds a value's path to the tree and returns its slot.
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

// ClusterScoped returns the schema for a resource whose field selectors reject metadata.namespace,
// as those of cluster-scoped custom resources do.
func (s *Schema) ClusterScoped() *Schema {
	return newSchema(slices.Clone(s.specs), s.aliases, true)
}

// WithoutManagedFields returns a schema whose objects are stored without their managedFields, so
// that the object's bytes differ from those given to Decode.
func (s *Schema) WithoutManagedFields() *Schema {
	c := newSchema(slices.Clone(s.specs), s.aliases, s.noNamespace)
	c.DropsManagedFields = true
	return c
}

// CanonicalField returns the canonical form of a label in a field selector: metadata.name,
// metadata.namespace or one of Fields (for pods, spec.host is spec.nodeName). ok is false if the
// upstream rejects the label or kubeweir cannot read the field, so that the request has to be
// forwarded.
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
	if slices.Contains(s.Fields, label) {
		return label, true
	}
	return "", false
}

// Since returns the first minor release of Kubernetes 1 whose API servers have all labels of the
// selector, 0 if all supported ones have them. CanonicalField must accept the labels.
func (s *Schema) Since(selector fields.Selector) int {
	newest := 0
	for _, r := range selector.Requirements() {
		label, _ := s.CanonicalField(r.Field)
		if i := slices.Index(s.Fields, label); i >= 0 {
			newest = max(newest, s.specs[i].since)
		}
	}
	return newest
}

// internSlots is the maximum number of strings in an interner.
const internSlots = 1024

// internMaxLen is the longest string worth sharing; a label value has at most 63 bytes, a label key
// with its prefix rarely more than 100.
const internMaxLen = 128

// interner shares strings that many objects of a collection repeat (label keys, node names,
// phases). It is a direct-mapped table, so it is bounded by construction and needs no lock: a lost
// race costs one string that is not shared, never a wrong one.
//
// A string enters when it is seen for the second time. A unique one (a label with the pod's name)
// therefore costs no allocation and evicts nothing.
type interner struct {
	seed  maphash.Seed
	seen  [internSlots]atomic.Uint32
	value [internSlots]atomic.Pointer[string]
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

// get returns the shared string equal to b. ok is false if there is none (yet).
func (t *interner) get(b []byte) (s string, ok bool) {
	if len(b) == 0 {
		return "", true
	}
	if len(b) > internMaxLen {
		return "", false
	}
	h := maphash.Bytes(t.seed, b)
	slot := h % internSlots
	if p := t.value[slot].Load(); p != nil && *p == string(b) {
		return *p, true
	}
	mark := uint32(h>>32) | 1 // never 0, which marks an unused slot
	if t.seen[slot].Swap(mark) != mark {
		return "", false
	}
	shared := string(b)
	t.value[slot].Store(&shared)
	return shared, true
}
