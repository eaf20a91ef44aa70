package store

import "github.com/kubeweir/kubeweir/object"

// Selection is objects of a snapshot in key order: Objects if IsPicked, otherwise the first N
// objects of Namespace ("" for all) whose keys are at least From.
type Selection struct {
	Snapshot        *Snapshot
	IsPicked        bool
	Objects         []*object.Object
	Namespace, From string
	N               int
}

// Len returns the number of objects.
func (s *Selection) Len() int {
	if s.IsPicked {
		return len(s.Objects)
	}
	return s.N
}

// Bytes returns the approximate size of the objects, from the average of the snapshot.
func (s *Selection) Bytes() int64 {
	return s.Snapshot.Bytes() / int64(max(1, s.Snapshot.Len())) * int64(s.Len())
}

// Each calls visit for each object with its position until visit returns false.
func (s *Selection) Each(visit func(i int, o *object.Object) bool) {
	if s.IsPicked {
		for i, o := range s.Objects {
			if !visit(i, o) {
				return
			}
		}
		return
	}
	if s.N == 0 {
		return
	}
	i := 0
	s.Snapshot.Ascend(s.Namespace, s.From, func(o *object.Object) bool {
		more := visit(i, o)
		i++
		return more && i < s.N
	})
}
