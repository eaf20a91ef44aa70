package freshness_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// tearingSource delays every second deletion.
type tearingSource struct {
	cachetest.VersionLister
	deletions atomic.Int64
}

func (s *tearingSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.VersionLister.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.Type == api.Deleted && s.deletions.Add(1)%2 == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		return handle(ev)
	})
}

// TestFreshWaitsWithinSharedVersion checks that a proof that finds the watch between two changes of
// one version waits for the second, not for a later version.
func TestFreshWaitsWithinSharedVersion(t *testing.T) {
	for name, others := range map[string]uint64{"the newest version": 0, "an older version": 5} {
		t.Run(name, func(t *testing.T) {
			cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
				m := cachetest.NewManager(t, &tearingSource{VersionLister: cachetest.VersionLister{Source: s}}, cache.Limits{})
				defer m.Close()
				c := cachetest.PodCollection(t, m)
				s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
				s.Create(cachetest.Pods, cachetest.Pod("a/2", ""))
				synctest.Wait()
				s.DeleteTogether(cachetest.Pods, "a/1", "a/2")
				s.Bump(others)
				synctest.Wait()
				s.Calls()
				began := time.Now()
				rv, err := c.Fresh(t.Context())
				if took := time.Since(began); err != nil || rv != 103+others || took > 200*time.Millisecond {
					t.Errorf("%d %v after %s", rv, err, took)
				}
				if v := c.Snapshot(); v.Len() != 0 || v.RV() != 103+others {
					t.Errorf("%d objects at %d", v.Len(), v.RV())
				}
				time.Sleep(5 * time.Second)
				if calls := s.Calls(); slices.ContainsFunc(calls, func(call string) bool { return call[:5] == "watch" }) {
					t.Errorf("%q", calls)
				}
			})
		})
	}
}
