package reflector_test

import (
	"testing"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/object"
)

func TestBookmarkTemplate(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		got, err := object.Codec(c.Encoding()).ParseBookmark(c.BookmarkTemplate())
		if err != nil || got.ResourceVersion != 100 {
			t.Errorf("%s: %+v, %v", c.BookmarkTemplate(), got, err)
		}
	})
}
