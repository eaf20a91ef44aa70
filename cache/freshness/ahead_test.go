package freshness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestRewindBelowConfirmedVersionIsDetected checks that an upstream that goes back below a proven
// version counts as rewound although the watch has not reached that version: readers have seen it.
func TestRewindBelowConfirmedVersionIsDetected(t *testing.T) {
	for name, after := range map[string]func(s *cachetest.Source){
		"the watch is resumed": func(*cachetest.Source) {},
		"it lists again":       func(s *cachetest.Source) { s.Compact() },
	} {
		t.Run(name, func(t *testing.T) {
			listedBubble(t, func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
				s.Bump(5)
				backup := s.Backup()
				s.Bump(5)
				if rv, err := c.Fresh(t.Context()); err != nil || rv != 110 {
					t.Fatal(rv, err)
				}
				s.Rewind(backup)
				after(s)
				s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if state := c.State(); !errors.Is(state.Err, store.ErrRewound) {
					t.Errorf("%s: %v; at %d, the source at %d", state.Phase, state.Err, c.RV(), s.Revision())
				}
			})
		})
	}
}

// lateListSource withholds the end of streaming lists until late is closed.
type lateListSource struct {
	cachetest.VersionLister
	late chan struct{} // nil: no delay
}

func (s *lateListSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	late := s.late
	return s.VersionLister.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.InitialEventsEnd && late != nil {
			<-late
		}
		return handle(ev)
	})
}

// TestFreshnessCheckDuringListIsNoRewind checks that readers who saw a newer version while a list was in
// progress do not make the upstream look rewound.
func TestFreshnessCheckDuringListIsNoRewind(t *testing.T) {
	for name, before := range map[string]func(*cachetest.Source){
		"by names":   func(*cachetest.Source) {},
		"by a probe": func(s *cachetest.Source) { s.Fail("references", source.ErrUnsupported) },
	} {
		t.Run(name, func(t *testing.T) {
			cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
				source := &lateListSource{VersionLister: cachetest.VersionLister{Source: s}}
				m := cachetest.NewManager(t, source, cache.Limits{})
				defer m.Close()
				c := cachetest.PodCollection(t, m)
				synctest.Wait()
				source.late = make(chan struct{})
				before(s)
				s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
				synctest.Wait()
				s.Bump(5)
				s.Fail("watch", apierrors.NewResourceExpired("compacted"))
				s.Break(errors.New("reset"))
				time.Sleep(2 * time.Second) // the list is read except for its end
				s.Bump(5)
				if rv, err := c.Fresh(t.Context()); err != nil || rv != 111 {
					t.Fatal(rv, err)
				}
				close(source.late)
				time.Sleep(5 * time.Second)
				s.Create(cachetest.Pods, cachetest.Pod("a/2", ""))
				synctest.Wait()
				if v := c.Snapshot(); c.State().Phase != reflector.Synced || v.RV() != 112 || v.Len() != 2 {
					t.Errorf("%v; %d objects at %d", c.State(), v.Len(), v.RV())
				}
				if broken := c.CheckInvariants(); broken != "" {
					t.Error(broken)
				}
			})
		})
	}
}

// TestProbeAfterVersionComparison checks that watches receive what came and went before a version
// proven by names, although a probe has reached a later version.
func TestProbeAfterVersionComparison(t *testing.T) {
	listedBubble(t, func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
		w, err := c.Mux().Watch(c.RV(), nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		s.Hold()
		s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		s.Delete(cachetest.Pods, "a/1")
		s.Bump(8)
		if rv, err := c.Fresh(t.Context()); err != nil || rv != 110 {
			t.Fatal(rv, err)
		}
		s.Fail("references", source.ErrUnsupported)
		s.Bump(10)
		if rv, err := c.Fresh(t.Context()); err != nil || rv != 120 {
			t.Fatal(rv, err)
		}
		s.Calls()
		s.Release()
		time.Sleep(5 * time.Second)
		if got := cachetest.Deliveries(w); got != "ADDED a/1@101 DELETED a/1@102" {
			t.Errorf("the watch got %q", got)
		}
		if calls := s.Calls(); len(calls) > 0 {
			t.Errorf("the feed did not go on: %q", calls)
		}
		if v := c.Snapshot(); v.RV() != 120 || v.Len() != 0 {
			t.Errorf("%d objects at %d", v.Len(), v.RV())
		}
	})
}
