package freshness_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// TestFreshByVersionComparison checks that freshness is proved by the names and versions of the
// objects if there are few, or if no bookmark would arrive.
func TestFreshByVersionComparison(t *testing.T) {
	const names = "references pods limit=0"
	fresh := func(t *testing.T, s *cachetest.Source, c *cache.Collection, within time.Duration) {
		t.Helper()
		want, began := s.Revision(), time.Now()
		rv, err := c.Fresh(t.Context())
		if err != nil || rv < want || c.RV() < want || c.Snapshot().RV() < want || time.Since(began) > within {
			t.Errorf("fresh: %d %v after %s, collection at %d, view at %d, want %d", rv, err, time.Since(began), c.RV(), c.Snapshot().RV(), want)
		}
	}
	tests := map[string]func(t *testing.T, s *cachetest.Source, c *cache.Collection){
		"nothing happened to the resource": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Bump(10)
			fresh(t, s, c, 20*time.Millisecond)
			if calls := s.Calls(); !slices.Equal(calls, []string{names}) {
				t.Errorf("%q", calls)
			}
			if v, err := c.SnapshotAt(c.RV()); err != nil || v.RV() != c.RV() {
				t.Errorf("the proven state: %v", err)
			}
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			synctest.Wait()
			if v := c.Snapshot(); v.RV() != s.Revision() || v.Get("a/1") == nil {
				t.Errorf("a later event is missing: at %d", v.RV())
			}
		},
		"no bookmarks": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.HoldBookmarks(true)
			for i := range 2500 { // however many objects
				s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%d", i), ""))
			}
			synctest.Wait() // collections that lag far behind report it
			s.Bump(10)
			fresh(t, s, c, 20*time.Millisecond)
		},
		"many objects, and bookmarks": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			for i := range 2500 {
				s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%d", i), ""))
			}
			time.Sleep(61 * time.Second)
			s.Bump(10)
			s.Calls()
			fresh(t, s, c, 1100*time.Millisecond)
			if calls := s.Calls(); slices.Contains(calls, names) {
				t.Errorf("%q", calls)
			}
		},
		"the watch lags": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Hold()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			s.Bump(10)
			time.AfterFunc(time.Second, s.Release)
			fresh(t, s, c, time.Second)
			if c.Snapshot().Get("a/1") == nil {
				t.Error("the object is missing")
			}
		},
		"a deletion is late": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			synctest.Wait()
			s.Hold()
			s.Delete(cachetest.Pods, "a/1")
			s.Bump(10)
			time.AfterFunc(time.Second, s.Release)
			fresh(t, s, c, time.Second)
			if c.Snapshot().Len() != 0 {
				t.Error("a deleted object still exists")
			}
		},
		"the feed is too late": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Hold()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			var tooLarge *store.TooLargeError
			if _, err := c.Fresh(t.Context()); !errors.As(err, &tooLarge) {
				t.Errorf("got %v", err)
			}
			s.Release()
		},
		"no such list": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Fail("references", source.ErrUnsupported)
			s.Bump(10)
			fresh(t, s, c, 1100*time.Millisecond)
		},
		"the feed is broken": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Fail("watch", errors.New("reset"), errors.New("reset"))
			s.Break(errors.New("reset"))
			s.Bump(10)
			fresh(t, s, c, 20*time.Millisecond)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listedBubble(t, func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
				s.Calls()
				test(t, s, c)
			})
		})
	}
}

// TestConfirmedStateNeverGoesBack checks that, once the collection's state is proven at a version, no
// reader sees an older one although the watch delivers earlier events only then. Watches receive
// these events as they happened.
func TestConfirmedStateNeverGoesBack(t *testing.T) {
	listedBubble(t, func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
		s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		synctest.Wait()
		w, err := c.Mux().Watch(c.RV(), nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		s.Hold()
		s.Create(cachetest.Pods, cachetest.Pod("a/2", ""))
		s.Update(cachetest.Pods, cachetest.Pod("a/2", "n"))
		s.Delete(cachetest.Pods, "a/2")
		s.Bump(10)
		if rv, err := c.Fresh(t.Context()); err != nil || rv != 114 {
			t.Fatal(rv, err)
		}
		held := c.Snapshot()
		later, err := c.Mux().Watch(held.RV(), nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		f := cachetest.Filter(t, c.Resource(), "a", "", "")
		bring := func() {
			t.Helper()
			s.Release()
			synctest.Wait()
			if v := c.Snapshot(); v.RV() != 114 || v.Len() != 1 {
				t.Errorf("%d objects at %d", v.Len(), v.RV())
			}
			if objs, at := c.Select(t.Context(), f); at != nil && (at.RV() < 114 || len(objs) != 1) {
				t.Errorf("selected %d objects at %d", len(objs), at.RV())
			}
		}
		bring()
		if got := cachetest.Deliveries(w); got != "ADDED a/2@102 MODIFIED a/2@103 DELETED a/2@104" {
			t.Errorf("the watch got %s", got)
		}
		if v, err := c.SnapshotAt(103); err != nil || v.Len() != 2 {
			t.Errorf("the state at 103: %v", err)
		}
		s.Create(cachetest.Pods, cachetest.Pod("a/3", ""))
		synctest.Wait()
		if v := c.Snapshot(); v.RV() != 115 || v.Len() != 2 {
			t.Errorf("%d objects at %d", v.Len(), v.RV())
		}
		if got := cachetest.Deliveries(later); got != "ADDED a/2@102 MODIFIED a/2@103 DELETED a/2@104 ADDED a/3@115" && got != "ADDED a/3@115" {
			t.Errorf("the later watch got %s", got)
		}
		time.Sleep(time.Minute)
		if v, err := c.SnapshotAt(114); err != nil || v.Len() != 1 {
			t.Errorf("the state at 114: %v", err)
		}
		if broken := c.CheckInvariants(); broken != "" {
			t.Error(broken)
		}
	})
}

// TestVersionComparisonInProtobuf checks that the proof by names works in every encoding.
func TestVersionComparisonInProtobuf(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
		m := cachetest.NewManager(t, cachetest.VersionLister{Source: s}, cache.Limits{})
		defer m.Close()
		s.Create(cachetest.Pods, cachetest.Pod("a-b/1", ""))
		s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		c := cachetest.Collection(t, m, cachetest.PodResource(), api.Protobuf)
		s.Bump(3)
		if rv, err := c.Fresh(t.Context()); err != nil || rv != s.Revision() {
			t.Errorf("%d %v", rv, err)
		}
		n := 0
		c.Snapshot().Ascend("", "", func(*object.Object) bool { n++; return true })
		if n != 2 {
			t.Errorf("%d objects", n)
		}
	})
}
