package managedfields

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A kind says what becomes of a value.
type kind uint8

const (
	// unforeseen values are left to the library.
	unforeseen kind = iota
	// ignored: managed by nobody, but looked at as item says, since an object with errors
	// has no managers at all.
	ignored
	// leaf: managed as a whole.
	leaf
	// structure: managed field by field.
	structure
	// mapping: managed key by key.
	mapping
	// list: managed item by item, each named by its keys, or by itself in a set.
	list
)

// A node is the plan for the values at one place of a type. Nodes do not change after
// they were made.
type node struct {
	kind   kind
	fields []field // of a structure, by name
	item   *node   // of a mapping or list, or what is ignored
	keys   []key   // of a list, by name; none for a set

	// held: the empty object has a value here, the zero value of the type. What equals
	// it is nobody's.
	held bool
	// heldFields: that value is a structure that has fields, too.
	heldFields bool
	// unnamed: not managed itself, only what is in it.
	unnamed bool
}

type field struct {
	name  string
	entry *value.FieldCacheEntry
	node  *node
}

// A key is one of those that name the items of a list.
type key struct {
	name     string
	fallback value.Value // for items without it; may be nil
}

// stripped are the fields that no manager has (k8s.io/apimachinery/pkg/util/
// managedfields/internal, NewStripMetaManager).
var stripped = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// A planner makes nodes.
type planner struct {
	schema *schema.Schema
	// made are the nodes of values that the empty object does not have: types may
	// contain themselves.
	made map[place]*node
}

type place struct {
	t            reflect.Type
	named        string
	relationship schema.ElementRelationship
}

// below is what a filter says of the places within a field.
func below(set *fieldpath.Set, name string) *fieldpath.Set {
	if set == nil {
		return nil
	}
	child, _ := set.Children.Get(fieldpath.PathElement{FieldName: &name})
	return child
}

func has(set *fieldpath.Set, name string) bool {
	return set != nil && set.Members.Has(fieldpath.PathElement{FieldName: &name})
}

// root is the plan of an object: a structure that the empty object has too. reset are
// fields that creation takes no notice of, with all that is in them.
func (p *planner) root(t reflect.Type, ref schema.TypeRef, reset *fieldpath.Set) *node {
	n := p.held(t, ref, stripped, reset)
	n.unnamed = true
	return n
}

// held is the node of a value that the empty object has, too: it is neither in a
// pointer nor in a map or list. unnamed and reset are what is so within it.
func (p *planner) held(t reflect.Type, ref schema.TypeRef, unnamed, reset *fieldpath.Set) *node {
	atom, kind := p.resolve(t, ref)
	if kind != structure || t.Kind() != reflect.Struct {
		n := *p.absent(t, ref)
		n.held = true
		if reset != nil {
			n.kind = unforeseen
		}
		return &n
	}
	n := &node{kind: structure, held: true}
	zero := reflect.Zero(t)
	for _, e := range value.TypeReflectEntryOf(t).OrderedFields() {
		if has(reset, e.JsonName) {
			n.fields = append(n.fields, field{e.JsonName, e, &node{kind: ignored, item: p.absent(typeOf(t, e), fieldRef(atom.Map, e.JsonName))}})
			continue
		}
		var child *node
		fieldType, childRef := typeOf(t, e), fieldRef(atom.Map, e.JsonName)
		if e.CanOmit(e.GetFrom(zero)) {
			copied := *p.absent(fieldType, childRef)
			child = &copied
			if below(reset, e.JsonName) != nil {
				child.kind = unforeseen
			}
		} else {
			child = p.held(fieldType, childRef, below(unnamed, e.JsonName), below(reset, e.JsonName))
			n.heldFields = true
		}
		child.unnamed = has(unnamed, e.JsonName)
		n.fields = append(n.fields, field{e.JsonName, e, child})
	}
	return n
}

// absent is the node of a value that the empty object does not have.
func (p *planner) absent(t reflect.Type, ref schema.TypeRef) *node {
	at := place{t: t}
	if ref.NamedType != nil {
		at.named = *ref.NamedType
		if ref.ElementRelationship != nil {
			at.relationship = *ref.ElementRelationship
		}
		if n, ok := p.made[at]; ok {
			return n
		}
	}
	n := &node{}
	if at.named != "" {
		p.made[at] = n
	}
	var atom schema.Atom
	atom, n.kind = p.resolve(t, ref)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.kind == structure && t.Kind() == reflect.Struct:
		for _, e := range value.TypeReflectEntryOf(t).OrderedFields() {
			n.fields = append(n.fields, field{e.JsonName, e, p.absent(typeOf(t, e), fieldRef(atom.Map, e.JsonName))})
		}
	case n.kind == structure && t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		n.kind, n.item = mapping, p.absent(t.Elem(), atom.Map.ElementType)
	case n.kind == list && t.Kind() == reflect.Slice:
		n.item = p.absent(t.Elem(), atom.List.ElementType)
		n.keys = p.keys(atom.List)
	case n.kind != leaf:
		n.kind = unforeseen
	}
	return n
}

// resolve is what the schema says of a type: leaf, structure (of mappings, too), list or
// unforeseen.
func (p *planner) resolve(t reflect.Type, ref schema.TypeRef) (schema.Atom, kind) {
	atom, ok := p.schema.Resolve(ref)
	if !ok {
		return atom, unforeseen
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Interface:
		return atom, unforeseen
	case (atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic) && (atom.List == nil || atom.List.ElementRelationship == schema.Atomic):
		return atom, leaf
	case t == reflect.TypeFor[intstr.IntOrString]() && atom.Scalar != nil:
		return atom, leaf // to the schema it may be anything
	case value.TypeReflectEntryOf(t).CanConvertToUnstructured():
		return atom, unforeseen
	case atom.List == nil && atom.Scalar == nil:
		return atom, structure
	case atom.Map == nil && atom.Scalar == nil:
		return atom, list
	}
	return atom, unforeseen
}

// keys are the names of those of a list's items, and what they are by default.
func (p *planner) keys(l *schema.List) []key {
	atom, _ := p.schema.Resolve(l.ElementType)
	var keys []key
	for _, name := range l.Keys {
		k := key{name: name}
		if atom.Map != nil {
			if f, ok := atom.Map.FindField(name); ok && f.Default != nil {
				k.fallback = value.NewValueInterface(f.Default)
			}
		}
		keys = append(keys, k)
	}
	return keys
}

func fieldRef(m *schema.Map, name string) schema.TypeRef {
	if f, ok := m.FindField(name); ok {
		return f.Type
	}
	return m.ElementType
}

// typeOf is the type of a field, which may be one of an embedded structure.
func typeOf(t reflect.Type, e *value.FieldCacheEntry) reflect.Type {
	return e.GetFrom(reflect.Zero(t)).Type()
}
