package read_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
)

// timeoutContext is a context that ends after it was checked a number of times.
type timeoutContext struct {
	context.Context
	looks, end int
}

func (p *timeoutContext) Err() error {
	if p.looks++; p.looks > p.end {
		return context.Canceled
	}
	return nil
}

// TestListStopsWhenClientLeaves checks that a list looks for its client's departure between
// objects, not only before the first and after the last.
func TestListStopsWhenClientLeaves(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		for i := range 5000 {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%d", i), "", "app=web"))
		}
		c := cachetest.PodCollection(t, m)
		r := cachetest.NewReader(t, read.Options{})
		for _, query := range []struct{ namespace, options string }{
			{"", "labelSelector=!x"}, {"a", "labelSelector=!x"}, {"a", "labelSelector=app%3Dweb,!x"},
			{"", "labelSelector=!x&limit=4000"}, {"", "labelSelector=app%3Dweb,!x"},
		} {
			opts, err := api.ParseListOptions("resourceVersion=0&" + query.options)
			if err != nil {
				t.Fatal(err)
			}
			ctx := &timeoutContext{Context: t.Context(), end: 3}
			_, err = r.List(ctx, c, &read.Request{Namespace: query.namespace, Options: opts})
			if !errors.Is(err, context.Canceled) || ctx.looks > 6 {
				t.Errorf("%+v: looked %d times: %v", query, ctx.looks, err)
			}
			if _, err := r.List(&timeoutContext{Context: t.Context(), end: 100}, c, &read.Request{Namespace: query.namespace, Options: opts}); err != nil {
				t.Errorf("%+v: %v", query, err)
			}
		}
	})
}
