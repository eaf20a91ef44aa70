package freshness_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestImmediateSource checks that, with a source that knows its version, a collection is fresh as
// soon as its watch has delivered.
func TestImmediateSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		src := &cachetest.ImmediateSource{Source: cachetest.New(cachetest.PodResource())}
		manager := cachetest.NewManager(t, src, cache.Limits{})
		defer manager.Close()
		if !manager.IsImmediate() {
			t.Error("the manager does not recognize the immediate source")
		}
		c := cachetest.PodCollection(t, manager)
		fresh := func(want uint64, wantTime time.Duration) {
			t.Helper()
			began := time.Now()
			rv, err := c.Fresh(t.Context())
			if took := time.Since(began); err != nil || rv != want || c.Snapshot().RV() != want || took != wantTime {
				t.Errorf("fresh at %d after %v, %v; want %d after %v", rv, took, err, want, wantTime)
			}
		}
		fresh(100, 0)
		src.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		fresh(101, 0)
		src.Bump(10) // writes to other resources
		fresh(111, 0)

		src.Bump(10)
		if err := c.WaitFor(t.Context(), 121, time.Second); err != nil || time.Since(time.Now()) > 0 {
			t.Errorf("waiting for a version of another resource: %v", err)
		}
		var tooLarge *store.TooLargeError
		if err := c.WaitFor(t.Context(), 122, time.Second); !errors.As(err, &tooLarge) {
			t.Errorf("waiting for a future version: %v", err)
		}

		// The watch lags.
		src.Hold()
		src.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		time.AfterFunc(time.Second, src.Release)
		fresh(122, time.Second)
		src.Hold()
		src.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
		if _, err := c.Fresh(t.Context()); !errors.As(err, &tooLarge) {
			t.Errorf("a watch that does not progress: %v", err)
		}
		src.Release()

		// Without an immediate result of the source the version is determined as for any other
		// source.
		src.Deaf.Store(true)
		if err := c.Freshness().FreshAtOnce(t.Context()); !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("err = %v", err)
		}
		src.Create(cachetest.Pods, cachetest.Pod("default/d", ""))
		fresh(124, 0)
	})
}

// TestImmediateSourceWaitsWithinSharedVersion checks that a read that arrives while the watch is
// between two changes of one version waits for the second, and does not list.
func TestImmediateSourceWaitsWithinSharedVersion(t *testing.T) {
	for name, others := range map[string]uint64{"the last version": 0, "a version of another resource": 5} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				source := &cachetest.ImmediateSource{Source: cachetest.New(cachetest.PodResource())}
				for _, name := range []string{"a", "b", "c"} {
					source.Create(cachetest.Pods, cachetest.Pod("default/"+name, ""))
				}
				manager := cachetest.NewManager(t, source, cache.Limits{})
				defer manager.Close()
				c := cachetest.PodCollection(t, manager)
				synctest.Wait()
				source.Calls()
				source.HoldAfter(1)
				source.DeleteTogether(cachetest.Pods, "default/a", "default/b", "default/c")
				want := source.Bump(others)
				synctest.Wait()
				time.AfterFunc(time.Second, source.Release)
				began := time.Now()
				rv, err := c.Fresh(t.Context())
				if took := time.Since(began); err != nil || rv != want || c.Snapshot().Len() != 0 || took != time.Second {
					t.Errorf("fresh at %d after %v, %v, with %d objects; want %d", rv, took, err, c.Snapshot().Len(), want)
				}
				synctest.Wait()
				if calls := source.Calls(); len(calls) > 0 {
					t.Errorf("the source was called: %v", calls)
				}
				// A complete version is not waited for.
				if rv, err = c.Fresh(t.Context()); err != nil || rv != want {
					t.Errorf("fresh at %d, %v", rv, err)
				}
			})
		})
	}
}

func TestOrdinarySourceIsNotImmediate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		manager := cachetest.NewManager(t, cachetest.New(cachetest.PodResource()), cache.Limits{})
		defer manager.Close()
		c := cachetest.PodCollection(t, manager)
		if err := c.Freshness().FreshAtOnce(t.Context()); !errors.Is(err, source.ErrUnsupported) || manager.IsImmediate() {
			t.Errorf("err = %v", err)
		}
	})
}
