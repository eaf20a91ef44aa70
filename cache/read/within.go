package read

import (
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// Lists and watches of some of all namespaces (object.Filter.Within) visit only the objects in
// these namespaces, each of which is a range of keys.

// selectWithin selects what the filter matches within its namespaces.
func (q *listRequest) selectWithin(c Collection, s *Selection, looking *store.Cancellation) {
	terms := q.filter.HasTerms() || q.filter.Shard != nil
	more := 0
	s.Snapshot.AscendNamespaces(q.filter, s.From, func(o *object.Object) bool {
		switch {
		case looking.Requested():
			return false
		case s.limit > 0 && len(s.Objects) == s.limit:
			// As elsewhere, something remains if there is another object, matching or not.
			more++
			return !terms
		case !terms || q.filter.Matches(o):
			s.Objects = append(s.Objects, o)
		}
		return true
	})
	if looking.Seen || more == 0 {
		return
	}
	if !terms {
		remaining := int64(more)
		s.remaining = &remaining
	}
	q.page(c, s, s.Objects[s.limit-1].Key)
}
