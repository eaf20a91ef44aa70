package selfcheck_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// faultySource changes what the reflector's watch and samples of lists return.
type faultySource struct {
	cachetest.VersionLister
	// watched may drop an event of the watch, by returning false, or change its bytes.
	watched func(*source.Event) bool
	// listed may change the bytes of an object listed with a continue token.
	listed func([]byte) []byte
	page   int64 // the maximum size of pages, 0 for none
}

func (s *faultySource) limit(limit int64) int64 {
	if s.page > 0 {
		return min(limit, s.page)
	}
	return limit
}

func (s *faultySource) ListVersions(ctx context.Context, res *source.Resource, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	opts.Limit = s.limit(opts.Limit)
	return s.VersionLister.ListVersions(ctx, res, opts, visit)
}

func (s *faultySource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if s.watched != nil && !opts.Probe && len(ev.Object) > 0 && ev.Type != api.Bookmark && !s.watched(&ev) {
			return nil
		}
		return handle(ev)
	})
}

func (s *faultySource) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	opts.Limit = s.limit(opts.Limit)
	return s.Source.List(ctx, res, enc, opts, func(item []byte) error {
		if s.listed != nil && opts.Continue != "" {
			item = s.listed(item)
		}
		return visit(item)
	})
}

// checkBench runs f with a faulty source of n pods and a manager, in fake time.
func checkBench(t *testing.T, n int, o cache.Options, f func(t *testing.T, s *faultySource, m *cache.Manager)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := &faultySource{VersionLister: cachetest.VersionLister{Source: cachetest.New(cachetest.PodResource(), cachetest.NodeResource(), cachetest.WidgetResource())}}
		for i := range n {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-%d/pod-%03d", i%3, i), "", "color=green"))
		}
		o.Source, o.Limits = s, cache.Limits{IdleAfter: 24 * time.Hour}
		m, err := cache.NewManager(o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		f(t, s, m)
	})
}

func everyResource(schema.GroupVersionResource) bool { return true }

// checkPods checks the only collection.
func checkPods(t *testing.T, m *cache.Manager) *selfcheck.Report {
	t.Helper()
	all := m.Check(t.Context(), everyResource)
	if len(all) != 1 {
		t.Fatalf("%d collections were checked", len(all))
	}
	return all[0]
}

func describe(c *selfcheck.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d objects, %d sampled", c.Result, c.Objects, c.Sampled)
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "; %s %s %d %d", d.Kind, d.Key, d.Cached, d.Upstream)
	}
	if c.Err != nil {
		fmt.Fprintf(&b, "; %v", c.Err)
	}
	return b.String()
}
