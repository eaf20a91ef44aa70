package store

import (
	"fmt"

	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/shard"
)

// CheckInvariants recomputes everything that the store derives from its objects and describes the
// first difference; it returns "" if there is none. It is for tests.
func (s *Store) CheckInvariants() string {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	objs := map[string]*object.Object{}
	s.mu.tree.Scan(func(o *object.Object) bool {
		bytes += int64(len(o.Raw))
		objs[o.Key] = o
		return true
	})
	if bytes != s.mu.bytes {
		return fmt.Sprintf("%d bytes counted, %d held", s.mu.bytes, bytes)
	}
	if s.mux.RV() != s.mu.rv || s.rv.Load() != s.mu.rv {
		return fmt.Sprintf("versions differ: mux %d, store %d, rv %d", s.mux.RV(), s.mu.rv, s.rv.Load())
	}
	for key, x := range s.mu.indexes.byKey {
		if !x.built {
			continue
		}
		n := 0
		for _, o := range objs {
			if _, ok := x.value(o); ok {
				n++
				if held, _ := x.tree.Get(o); held != o {
					return fmt.Sprintf("index %v: %s is not the current state", key, o.Key)
				}
			}
		}
		if n != x.tree.Len() {
			return fmt.Sprintf("index %v: %d objects, want %d", key, x.tree.Len(), n)
		}
	}
	return s.checkShards(objs)
}

// checkShards checks the shard indexes of the store and of its current snapshot.
func (s *Store) checkShards(objs map[string]*object.Object) string {
	v := s.currentLocked()
	for key, x := range s.mu.shards {
		if x == nil || !x.built {
			continue
		}
		for _, o := range objs {
			if held, ok := x.tree.Get(hashed{o.ShardHash(shard.Key(key)), o}); !ok || held.o != o {
				return fmt.Sprintf("shards %d: %s is not the current state", key, o.Key)
			}
		}
		if x.tree.Len() != len(objs) || v.shards[key].Len() != len(objs) {
			return fmt.Sprintf("shards %d: %d and %d objects, want %d", key, x.tree.Len(), v.shards[key].Len(), len(objs))
		}
	}
	return ""
}
