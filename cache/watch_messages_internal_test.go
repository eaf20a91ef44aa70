package cache

import (
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
)

// TestMessagesAllocateNothing: the head of a message is made in memory that is kept from
// one delivery to the next, and what follows is shared.
func TestMessagesAllocateNothing(t *testing.T) {
	s := &watchStream{req: &WatchRequest{Message: func(dst []byte, size int) []byte { return append(dst, byte(size)) }}}
	shared := []byte(`{"kind":"Pod"}`)
	var sc scratch
	deliver := func() {
		sc.frames, sc.buf = sc.frames[:0], sc.buf[:0]
		for range 100 {
			head := s.openMessage(&sc)
			sc.frames = append(sc.frames, frameHeads[api.Added], shared, frameTail)
			s.closeMessage(&sc, head)
		}
	}
	if n := testing.AllocsPerRun(10, deliver); n != 0 {
		t.Errorf("%v allocations for 100 events", n)
	}
	if len(sc.frames) != 400 || &sc.frames[2][0] != &shared[0] {
		t.Errorf("%d frames; the object's bytes are shared: %v", len(sc.frames), &sc.frames[2][0] == &shared[0])
	}
}
