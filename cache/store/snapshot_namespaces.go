package store

import (
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/object"
)

// SelectNamespaces returns the objects that f matches in key order. f.Within must not be nil.
func (v *Snapshot) SelectNamespaces(f *object.Filter, looking *Cancellation) []*object.Object {
	objs := []*object.Object{}
	v.AscendNamespaces(f, "", func(o *object.Object) bool {
		if looking.Requested() {
			return false
		}
		if f.Matches(o) {
			objs = append(objs, o)
		}
		return true
	})
	return objs
}

// AscendNamespaces calls visit for each object in the namespaces of f.Within whose key is at least
// from, in key order, until visit returns false. If the field selector names one of the namespaces,
// it visits only that one.
func (v *Snapshot) AscendNamespaces(f *object.Filter, from string, visit func(*object.Object) bool) {
	keys := f.Within.Keys()
	if f.Fields != nil && !f.Within.Themselves() {
		if only, ok := f.Fields.RequiresExactMatch("metadata.namespace"); ok {
			if !f.Within.Has(only) {
				return
			}
			keys = []string{only + "/"}
		}
	}
	first, found := slices.BinarySearch(keys, from)
	if !found && first > 0 && !f.Within.Themselves() && strings.HasPrefix(from, keys[first-1]) {
		first-- // from is inside that namespace
	}
	more := true
	for _, key := range keys[first:] {
		if f.Within.Themselves() {
			if o := v.Get(key); o != nil {
				more = visit(o)
			}
		} else {
			v.ascendPrefix(key, from, func(o *object.Object) bool {
				more = visit(o)
				return more
			})
		}
		if !more {
			return
		}
	}
}
