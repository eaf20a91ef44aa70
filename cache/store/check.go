package store

import (
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/object"
)

// CheckInvariants recomputes everything that the store derives from its objects and describes the
// first difference; it returns "" if there is none. It is for tests.
func (s *Store) CheckInvariants() string {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	s.mu.tree.Scan(func(o *object.Object) bool {
		bytes += int64(len(o.Raw))
		return true
	})
	if bytes != s.mu.bytes {
		return fmt.Sprintf("%d bytes counted, %d held", s.mu.bytes, bytes)
	}
	if s.mux.RV() != s.mu.rv || s.rv.Load() != s.mu.rv {
		return fmt.Sprintf("versions differ: mux %d, store %d, rv %d", s.mux.RV(), s.mu.rv, s.rv.Load())
	}
	v := s.currentLocked()
	for x := range s.mu.indexes.all() {
		if x.built && !slices.Equal(x.tree.Items(), x.build(v).Items()) {
			return fmt.Sprintf("an index of %d objects is not that of the current state", x.tree.Len())
		}
	}
	for key, x := range s.mu.indexes.shards {
		if x != nil && x.built && !slices.Equal(x.tree.Items(), v.shards[key].Items()) {
			return fmt.Sprintf("the index of shards %d differs from that of the snapshot", key)
		}
	}
	return ""
}
