package etcd

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/origin/storage/storagetest"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestMembers runs the tests that concern several members on a cluster of three. Reads are served
// by members that lag behind. Each fault kills another member, and every third fault also the
// likely next leader.
func TestMembers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	m, err := realkube.StartMembers(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	open := func(t *testing.T, first int) storage.Engine {
		urls := m.URLs()
		e, err := etcd.Open(t.Context(), etcd.Options{Endpoints: append(urls[first:], urls[:first]...), CompactionInterval: -1, WatchTimeout: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	faults := 0
	restart := func(t *testing.T) {
		dead := []int{faults % 3}
		if faults%3 == 2 {
			dead = append(dead, (faults+1)%3) // no quorum
		}
		faults++
		for _, i := range dead {
			m.Kill(i)
		}
		started := make(chan error, len(dead))
		for _, i := range dead {
			go func() { started <- m.Start(context.WithoutCancel(t.Context()), i) }()
		}
		for range dead {
			if err := <-started; err != nil {
				t.Error(err)
			}
		}
	}
	// The other cases do not depend on which member responds.
	names := []string{
		"ReadOwnWrites", "RangeFuture", "RangePagesOfOneRevision", "WatchEveryStart", "WatchFromFuture", "WatchBehindIsComplete",
		"ProgressIdle", "ProgressOfOthersWrites", "ProgressBehindEvents", "ProgressWhileWriting", "ProgressOfMany",
		"CompactRange", "CompactWhileWatching", "TTLManyAtOnce", "ConcurrentCounter", "ConcurrentCreate", "Linearizable",
		"SnapshotsAreConsistent", "WatchesOfAll", "BesideSeesAll", "FaultIdle", "FaultUnderLoad",
	}
	ran := 0
	for _, c := range storagetest.Cases() {
		if !slices.Contains(names, c.Name) {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, func(t *testing.T) storagetest.Store {
				return storagetest.Store{
					Engine:      open(t, 0),
					Beside:      func() storage.Engine { return open(t, 1) },
					Fault:       func() { restart(t) },
					ShortestTTL: 2 * time.Second,
					NotLeaks:    []goleak.Option{goleak.IgnoreAnyFunction("github.com/kubeweir/kubeweir/test/realkube.(*process).run")},
				}
			})
		})
	}
	if ran != len(names) {
		t.Errorf("the suite has %d of the %d cases", ran, len(names))
	}
}
