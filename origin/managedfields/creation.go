package managedfields

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A Creation knows what the creator of objects of one type manages. It is safe for
// concurrent use.
type Creation struct {
	t    reflect.Type // a pointer to it is the object
	root *node
}

// NewCreation makes a plan for objects like o, a pointer to a structure, whose type
// is called name in s. Fields in reset, and all that is in them, are left out
// (rest.ResetFieldsStrategy); it may be nil.
func NewCreation(s *schema.Schema, name string, o runtime.Object, reset *fieldpath.Set) *Creation {
	t := reflect.TypeOf(o).Elem()
	p := planner{schema: s, made: map[place]*node{}}
	return &Creation{t: t, root: p.root(t, schema.TypeRef{NamedType: &name}, reset)}
}

// Fields is the FieldsV1 of who created o, which has no managed fields itself; ok is
// false if only the library can tell.
func (c *Creation) Fields(o runtime.Object) (fields []byte, ok bool) {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.Elem().Type() != c.t {
		return nil, false
	}
	w := writer{buf: make([]byte, 0, 512)}
	w.buf = append(w.buf, '{')
	w.contents(c.root, v.Elem())
	w.buf = append(w.buf, '}')
	return w.buf, !w.lost && len(w.buf) > len("{}")
}

// A writer appends fieldsets in JSON, in the order of fieldpath.Set.ToJSON.
type writer struct {
	buf []byte
	// lost: there was something unforeseen. What is written then is of no use.
	lost bool
}

// put writes what is managed of v under a name, or nothing if nothing is.
func (w *writer) put(n *node, prefix, name string, v reflect.Value) {
	before := len(w.buf)
	if n.kind == ignored {
		w.put(n.item, prefix, name, v)
		w.buf = w.buf[:before]
		return
	}
	if w.buf[before-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, prefix...)
	w.text(name)
	w.buf = append(w.buf, `":{`...)
	inner := len(w.buf)
	pointer := v.Kind() == reflect.Pointer
	v, null := dereference(v)
	if n.isLeaf(v, null) {
		if n.unnamed || n.held && (null || !pointer && !differs(v)) {
			w.buf = w.buf[:before]
			return
		}
		w.buf = append(w.buf, '}')
		return
	}
	named := !n.held && !n.unnamed
	if named {
		w.buf = append(w.buf, `".":{}`...)
	}
	self := len(w.buf)
	w.contents(n, v)
	switch {
	case len(w.buf) > self:
	case named:
		w.buf = w.buf[:inner]
	default:
		w.buf = w.buf[:before]
		return
	}
	w.buf = append(w.buf, '}')
}

// text writes a string as jsoniter does where it does not escape HTML.
func (w *writer) text(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.buf = append(w.buf, '\\', c)
		case c < ' ':
			w.lost = true
		default:
			w.buf = append(w.buf, c)
		}
	}
}

// isLeaf reports whether v has no parts that are managed for themselves. What is empty
// is a leaf, unless the empty object has parts there.
func (n *node) isLeaf(v reflect.Value, null bool) bool {
	switch n.kind {
	case leaf:
		return true
	case structure:
		return null || !n.heldFields && !n.anyField(v)
	case mapping, list:
		return null || v.Len() == 0
	}
	return false
}

func (n *node) anyField(v reflect.Value) bool {
	for i := range n.fields {
		if e := n.fields[i].entry; !e.CanOmit(e.GetFrom(v)) {
			return true
		}
	}
	return false
}

// differs reports whether a leaf is not the zero value, which the empty object has.
func differs(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct, reflect.Array:
		return !v.IsZero() && !equal(v, reflect.Zero(v.Type()))
	case reflect.Map, reflect.Slice: // not nil
		return true
	}
	return !v.IsZero()
}

// equal compares as managers do, by what JSON has of a value.
func equal(a, b reflect.Value) bool {
	var values [2]value.Value
	for i, v := range []reflect.Value{a, b} {
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		var err error
		if values[i], err = value.NewValueReflect(p.Interface()); err != nil {
			return false
		}
	}
	return value.Equals(values[0], values[1])
}

// contents writes what is managed in v.
func (w *writer) contents(n *node, v reflect.Value) {
	switch n.kind {
	case structure:
		for i := range n.fields {
			f := &n.fields[i]
			if fv := f.entry.GetFrom(v); !f.entry.CanOmit(fv) {
				w.put(f.node, "f:", f.name, fv)
			}
		}
	case mapping:
		w.mapping(n, v)
	case list:
		w.list(n, v)
	default:
		w.lost = true
	}
}

func (w *writer) mapping(n *node, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range keys {
		w.put(n.item, "f:", k.String(), v.MapIndex(k))
	}
}

// An item is one of a list, and its name.
type item struct {
	element fieldpath.PathElement
	value   reflect.Value
}

func (w *writer) list(n *node, v reflect.Value) {
	items := make([]item, v.Len())
	for i := range items {
		items[i].value = v.Index(i)
		var ok bool
		if items[i].element, ok = n.element(items[i].value); !ok {
			w.lost = true
			return
		}
	}
	slices.SortFunc(items, func(a, b item) int { return a.element.Compare(b.element) })
	for i, it := range items {
		name, err := fieldpath.SerializePathElement(it.element)
		if err != nil || i > 0 && it.element.Equals(items[i-1].element) { // a name that several have
			w.lost = true
			return
		}
		w.put(n.item, "", name, it.value)
	}
}

// element is the name of an item.
func (n *node) element(v reflect.Value) (fieldpath.PathElement, bool) {
	v, null := dereference(v)
	if null {
		return fieldpath.PathElement{}, false
	}
	if n.keys == nil {
		own, ok := scalar(v)
		return fieldpath.PathElement{Value: &own}, ok
	}
	if v.Kind() != reflect.Struct {
		return fieldpath.PathElement{}, false
	}
	named := make(value.FieldList, 0, len(n.keys))
	fields := value.TypeReflectEntryOf(v.Type()).Fields()
	for _, k := range n.keys {
		own := k.fallback
		if e, ok := fields[k.name]; ok {
			if fv := e.GetFrom(v); !e.CanOmit(fv) {
				if own, ok = scalar(fv); !ok {
					return fieldpath.PathElement{}, false
				}
			}
		}
		if own != nil {
			named = append(named, value.Field{Name: k.name, Value: own})
		}
	}
	slices.SortFunc(named, func(a, b value.Field) int { return strings.Compare(a.Name, b.Name) })
	return fieldpath.PathElement{Key: &named}, len(named) > 0
}

// scalar is the value of a string, number or boolean that JSON has as it is.
func scalar(v reflect.Value) (value.Value, bool) {
	v, null := dereference(v)
	if null || value.TypeReflectEntryOf(v.Type()).CanConvertToUnstructured() {
		return nil, false
	}
	switch v.Kind() {
	case reflect.String:
		return value.NewValueInterface(v.String()), true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return value.NewValueInterface(v.Int()), true
	case reflect.Bool:
		return value.NewValueInterface(v.Bool()), true
	}
	return nil, false
}

// dereference is what a pointer points to; null if there is nothing, as in a map or
// list that is nil.
func dereference(v reflect.Value) (_ reflect.Value, null bool) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return v, true
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v, v.IsNil()
	}
	return v, false
}
