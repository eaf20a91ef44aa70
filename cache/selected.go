package cache

import (
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// selected is objects of a snapshot in key order: objs if picked is true, otherwise the first n
// objects of namespace ("" for all) whose keys are at least from.
type selected struct {
	view            *store.View
	picked          bool
	objs            []*object.Object
	namespace, from string
	n               int
}

// Len returns the number of objects.
func (s *selected) Len() int {
	if s.picked {
		return len(s.objs)
	}
	return s.n
}

// Each calls visit for each object with its position until visit returns false.
func (s *selected) Each(visit func(i int, o *object.Object) bool) {
	if s.picked {
		for i, o := range s.objs {
			if !visit(i, o) {
				return
			}
		}
		return
	}
	if s.n == 0 {
		return
	}
	i := 0
	s.view.Ascend(s.namespace, s.from, func(o *object.Object) bool {
		more := visit(i, o)
		i++
		return more && i < s.n
	})
}
