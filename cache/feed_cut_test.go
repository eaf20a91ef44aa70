package cache_test

import (
	"context"
	"testing"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

// A streaming list that its server ends before the bookmark that says it is whole is
// no list, however cleanly it was ended.
func TestListThatEndsEarlyIsNeverServed(t *testing.T) {
	for after := range 4 {
		bubble(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
			for _, key := range []string{"a/1", "a/2", "a/3"} {
				s.Create(cachetest.Pods, cachetest.Pod(key, ""))
			}
			m := newManager(t, &endingSource{Source: s, after: after}, cache.Limits{})
			defer m.Close()
			for range 3 {
				c, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON)
				switch {
				case err != nil:
				case c.RV() != s.Revision() || c.View().Len() != 3:
					t.Errorf("ended after %d events: %d objects at %d", after, c.View().Len(), c.RV())
				}
			}
		})
	}
}

// endingSource ends its streaming lists cleanly after so many events.
type endingSource struct {
	*cachetest.Source
	after int
}

func (s *endingSource) Watch(ctx context.Context, res *cache.Resource, enc api.Encoding, opts cache.WatchOptions, handle func(cache.Event) error) error {
	if !opts.SendInitialEvents {
		return s.Source.Watch(ctx, res, enc, opts, handle)
	}
	left := s.after
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = s.Source.Watch(ctx, res, enc, opts, func(ev cache.Event) error {
		if ev.Type == cache.WatchAccepted {
			return handle(ev)
		}
		if left--; left < 0 {
			return context.Canceled
		}
		return handle(ev)
	})
	return ctx.Err()
}
