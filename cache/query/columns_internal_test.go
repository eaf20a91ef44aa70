package query

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestFramesOfChanges checks that a frame derived from an earlier one and the changes since has the
// objects of its snapshot, and that carried columns belong to them.
func TestFramesOfChanges(t *testing.T) {
	s := store.New(api.JSON, store.Options{
		History:     watchmux.Options{MaxAge: 10 * time.Minute, MaxBytes: 64 << 20, MaxEvents: 102_400},
		SnapshotAge: 10 * time.Minute, SnapshotBytes: 64 << 20,
		Contents: new(atomic.Uint64), Spawn: func(func()) {},
	})
	defer s.Close(nil)
	r := rand.New(rand.NewPCG(1, 2))
	version := uint64(0)
	change := func(kind api.EventType, i int) {
		version++
		o := &object.Object{Key: fmt.Sprintf("ns-%d/o-%05d", i%3, i), RV: version}
		o.Raw = []byte("{}")
		if err := s.Apply(kind, o); err != nil {
			t.Fatal(err)
		}
	}
	s.Install(&store.List{Tree: store.NewTree(), RV: 1})
	version = 1
	for i := range 2000 {
		change(api.Added, i)
	}
	earlier := newFrame(s, s.Current(), nil)
	followed := 0
	for round := range 300 {
		for range r.IntN(5) {
			i := r.IntN(2100)
			change([]api.EventType{api.Modified, api.Modified, api.Deleted}[r.IntN(3)], i)
		}
		if round%50 == 49 { // more changes than are looked up
			for i := range 200 {
				change(api.Modified, i)
			}
		}
		v := s.Current()
		if _, ok := s.ChangedSince(earlier.mark, v.Len()/fewChanged); ok {
			followed++
		}
		f, all := newFrame(s, v, &column{frame: earlier}), newFrame(s, v, nil)
		if !slices.Equal(f.objs, all.objs) {
			t.Fatalf("round %d: %d objects, want %d", round, len(f.objs), len(all.objs))
		}
		c := changeOf(earlier.objs, f.objs)
		n := len(c.fresh)
		for _, run := range c.same {
			n += run.n
			if !slices.Equal(earlier.objs[run.before:run.before+run.n], f.objs[run.after:run.after+run.n]) {
				t.Fatalf("round %d: a run of other objects", round)
			}
		}
		if n != len(f.objs) || len(earlier.objs)-c.gone+len(c.fresh) != n {
			t.Fatalf("round %d: %+v of %d", round, c, len(f.objs))
		}
		earlier = f
	}
	if followed < 200 {
		t.Errorf("%d of 300 frames were derived from changes", followed)
	}
	past, err := s.AppliedAt(version-3, time.Now())
	if err == nil && past.Mark().IsKnown {
		t.Error("a snapshot made from history has a mark")
	}
}
