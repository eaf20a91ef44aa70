package freshness_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
)

func TestFresh(t *testing.T) {
	fresh := func(t *testing.T, c *cache.Collection, want uint64) {
		t.Helper()
		if rv, err := c.Fresh(t.Context()); err != nil || rv < want || c.RV() < want {
			t.Errorf("fresh: %d %v, collection at %d, want %d", rv, err, c.RV(), want)
		}
	}
	tests := map[string]func(t *testing.T, s *cachetest.Source, c *cache.Collection){
		"up to date": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			began := time.Now()
			fresh(t, c, s.Revision())
			if calls := s.Calls(); !slices.Equal(calls, []string{"version pods"}) || time.Since(began) > 0 {
				t.Errorf("%q in %s", calls, time.Since(began))
			}
		},
		"the feed brings it": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Hold()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			time.AfterFunc(10*time.Millisecond, s.Release)
			fresh(t, c, s.Revision())
			if calls := s.Calls(); !slices.Equal(calls, []string{"version pods"}) {
				t.Errorf("%q", calls)
			}
		},
		"nothing happened to the resource": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Bump(10)
			began := time.Now()
			fresh(t, c, 110)
			if took := time.Since(began); took > 2*time.Second || c.RV() != 110 {
				t.Errorf("took %s, at %d", took, c.RV())
			}
			if calls := s.Calls(); !slices.Equal(calls, []string{"version pods", "watch pods rv=100 initial=false timeout=3"}) {
				t.Errorf("%q", calls)
			}
			if s.Watches() != 1 {
				t.Errorf("%d watches left", s.Watches())
			}
		},
		"the watch lags": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.Hold()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			s.Bump(10)
			time.AfterFunc(1500*time.Millisecond, s.Release)
			began := time.Now()
			fresh(t, c, 111)
			if took := time.Since(began); took != 1500*time.Millisecond || c.Snapshot().Get("a/1") == nil {
				t.Errorf("took %s", took)
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
		"no bookmarks": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.HoldBookmarks(true)
			s.Bump(10)
			if rv, err := c.Fresh(t.Context()); err == nil || c.RV() != 100 {
				t.Errorf("got %d %v", rv, err)
			}
		},
		"no bookmarks, but the feed comes past it": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.HoldBookmarks(true)
			s.Bump(10)
			time.AfterFunc(time.Second, func() { s.Create(cachetest.Pods, cachetest.Pod("a/1", "")) })
			fresh(t, c, 110)
		},
		"unsupported": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.NoCurrentVersion()
			if _, err := c.Fresh(t.Context()); !errors.Is(err, source.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
		},
		"rewound": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			b := s.Backup()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			synctest.Wait()
			s.RewindSilently(b)
			if _, err := c.Fresh(t.Context()); err == nil {
				t.Error("no error")
			}
			<-c.Closed()
			if st := c.State(); !errors.Is(st.Err, store.ErrRewound) {
				t.Errorf("state %+v", st)
			}
		},
		"the caller leaves": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.SetSilent(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.Fresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			s.SetSilent(false)
		},
		"shared": func(t *testing.T, s *cachetest.Source, c *cache.Collection) {
			s.SetSilent(true) // the call of the first round hangs
			var wg sync.WaitGroup
			wg.Go(func() { fresh(t, c, 100) })
			synctest.Wait()
			for range 20 {
				wg.Go(func() { fresh(t, c, 101) })
			}
			synctest.Wait()
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			s.SetSilent(false)
			wg.Wait()
			if calls := s.Calls(); !slices.Equal(calls, []string{"version pods", "version pods"}) {
				t.Errorf("%q", calls)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
				c := cachetest.PodCollection(t, m)
				s.Calls()
				test(t, s, c)
				synctest.Wait()
			})
		})
	}
}
