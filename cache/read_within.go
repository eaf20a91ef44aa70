package cache

import (
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/object"
)

// Lists and watches of some namespaces of all (object.Filter.Within) look at the objects in those namespaces only: each
// is a range of the keys.

// selectWithin selects what the filter selects within its namespaces.
func (q *query) selectWithin(c *Collection, s *selection, looking *search) {
	terms := q.filter.HasTerms() || q.filter.Shard != nil
	more := 0
	s.view.ascendWithin(q.filter, s.from, func(o *object.Object) bool {
		switch {
		case looking.abandoned():
			return false
		case s.limit > 0 && len(s.objs) == s.limit:
			// Something remains if any object there does, matching or not, as elsewhere.
			more++
			return !terms
		case !terms || q.filter.Matches(o):
			s.objs = append(s.objs, o)
		}
		return true
	})
	if looking.ended || more == 0 {
		return
	}
	if !terms {
		remaining := int64(more)
		s.remaining = &remaining
	}
	q.page(c, s, s.objs[s.limit-1].Key)
}

// within are the objects that f, which has namespaces, matches.
func (v *View) within(f *object.Filter, looking *search) []*object.Object {
	objs := []*object.Object{}
	v.ascendWithin(f, "", func(o *object.Object) bool {
		if looking.abandoned() {
			return false
		}
		if f.Matches(o) {
			objs = append(objs, o)
		}
		return true
	})
	return objs
}

// ascendWithin calls visit for the objects in the namespaces of f whose key is from or above, in the order of their
// keys, until it returns false. Of several namespaces it visits the one that the field selector names, if it does.
func (v *View) ascendWithin(f *object.Filter, from string, visit func(*object.Object) bool) {
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
		first-- // in the middle of a namespace
	}
	pivot := v.pivots.get("")
	defer func() { v.pivots.put(pivot) }()
	for _, key := range keys[first:] {
		pivot.Key = key
		if f.Within.Themselves() {
			if o, ok := v.tree.Get(pivot); ok && !visit(o) {
				return
			}
			continue
		}
		pivot.Key = max(key, from)
		ended := false
		v.tree.Ascend(pivot, func(o *object.Object) bool {
			if !strings.HasPrefix(o.Key, key) {
				return false
			}
			ended = !visit(o)
			return !ended
		})
		if ended {
			return
		}
	}
}
