package cache_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestPromptSource: with a source that tells how far it is no time passes until a
// collection is fresh, but that which the feed takes.
func TestPromptSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &cachetest.PromptSource{Source: cachetest.New(cachetest.PodResource())}
		manager, err := cache.NewManager(cache.Options{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		if !manager.Prompt() {
			t.Error("the manager does not know")
		}
		c, err := manager.Collection(t.Context(), cachetest.PodResource(), api.JSON)
		if err != nil {
			t.Fatal(err)
		}
		fresh := func(want uint64, wantTime time.Duration) {
			t.Helper()
			began := time.Now()
			rv, err := c.Fresh(t.Context())
			if took := time.Since(began); err != nil || rv != want || c.View().RV() != want || took != wantTime {
				t.Errorf("fresh at %d after %v, %v; want %d after %v", rv, took, err, want, wantTime)
			}
		}
		fresh(100, 0)
		source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		fresh(101, 0)
		source.Bump(10) // writes to other resources
		fresh(111, 0)

		source.Bump(10)
		if err := c.WaitFor(t.Context(), 121, time.Second); err != nil || time.Since(time.Now()) > 0 {
			t.Errorf("waiting for a version of another resource: %v", err)
		}
		var tooLarge *cache.TooLargeError
		if err := c.WaitFor(t.Context(), 122, time.Second); !errors.As(err, &tooLarge) {
			t.Errorf("waiting for a version of the future: %v", err)
		}

		// A feed that lags behind.
		source.Hold()
		source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		time.AfterFunc(time.Second, source.Release)
		fresh(122, time.Second)
		source.Hold()
		source.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
		if _, err := c.Fresh(t.Context()); !errors.As(err, &tooLarge) {
			t.Errorf("a feed that does not move: %v", err)
		}
		source.Release()

		// What the source cannot tell is found out as with any other.
		source.Deaf.Store(true)
		if _, err := c.FreshAtOnce(t.Context()); !errors.Is(err, cache.ErrUnsupported) {
			t.Errorf("err = %v", err)
		}
		source.Create(cachetest.Pods, cachetest.Pod("default/d", ""))
		fresh(124, 0)
	})
}

func TestNotPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, err := cache.NewManager(cache.Options{Source: cachetest.New(cachetest.PodResource())})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		c, err := manager.Collection(t.Context(), cachetest.PodResource(), api.JSON)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.FreshAtOnce(t.Context()); !errors.Is(err, cache.ErrUnsupported) || manager.Prompt() {
			t.Errorf("err = %v", err)
		}
	})
}
