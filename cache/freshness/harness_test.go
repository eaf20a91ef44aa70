package freshness_test

import (
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
)

func listedBubble(t *testing.T, f func(t *testing.T, s *cachetest.Source, c *cache.Collection)) {
	t.Helper()
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
		m := cachetest.NewManager(t, cachetest.VersionLister{Source: s}, cache.Limits{})
		defer m.Close()
		f(t, s, cachetest.PodCollection(t, m))
		synctest.Wait()
	})
}
