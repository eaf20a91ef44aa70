package reflector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// outageBench is a set of collections fed by one source.
type outageBench struct {
	t      *testing.T
	source *cachetest.Source
	feeds  []*cache.Collection
	logged bytes.Buffer
}

func newOutageBench(t *testing.T, wrap func(*cachetest.Source) source.Source) *outageBench {
	b := &outageBench{t: t}
	var resources []*source.Resource
	for i := range 20 {
		res := cachetest.PodResource()
		res.GroupVersionResource = schema.GroupVersionResource{Group: fmt.Sprintf("g%d", i), Version: "v1", Resource: "pods"}
		resources = append(resources, res)
	}
	b.source = cachetest.New(resources...)
	source := source.Source(b.source)
	if wrap != nil {
		source = wrap(b.source)
	}
	m, err := cache.NewManager(cache.Options{Source: source, Logger: slog.New(slog.NewTextHandler(&b.logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for _, res := range resources {
		b.source.Create(res.GroupVersionResource, cachetest.Pod("a/1", ""))
		c := cachetest.Collection(t, m, res, api.JSON)
		b.feeds = append(b.feeds, c)
	}
	synctest.Wait()
	b.source.Calls()
	b.logged.Reset()
	return b
}

// change writes an object of every resource.
func (b *outageBench) change() {
	for _, c := range b.feeds {
		b.source.Update(c.Resource().GroupVersionResource, cachetest.Pod("a/1", "n"))
	}
}

// behind returns the number of collections without the last change.
func (b *outageBench) behind() (n int) {
	synctest.Wait()
	for _, c := range b.feeds {
		if b.lacks(c) || c.State().Phase != reflector.Synced {
			n++
		}
	}
	return n
}

// lacks reports whether a collection does not hold the last change.
func (b *outageBench) lacks(c *cache.Collection) bool {
	objs := b.source.Objects(c.Resource().GroupVersionResource)
	return fmt.Sprint(c.Snapshot().Get("a/1").RV) != objs[0].GetResourceVersion()
}

// TestAllCollectionsRecoverAfterOutage checks that, however long the upstream was unreachable,
// every collection is current soon afterwards, and that the log has one line each for the beginning
// and the end.
func TestAllCollectionsRecoverAfterOutage(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			b := newOutageBench(t, nil)
			b.source.SetDown(true)
			time.Sleep(away)
			b.change()
			if n := b.behind(); n != len(b.feeds) {
				t.Errorf("%d collections are stale", n)
			}
			b.source.Calls()
			b.source.SetDown(false)
			time.Sleep(2 * time.Second)
			if n := b.behind(); n > 0 {
				t.Errorf("outage of %s: %d of %d collections are behind after 2 s", away, n, len(b.feeds))
			}
			if calls := b.source.Calls(); len(calls) != 3*len(b.feeds) { // the version, an object, the watch
				t.Errorf("outage of %s: %d calls to recover: %q", away, len(calls), calls)
			}
			if away > time.Second {
				log := b.logged.String()
				if strings.Count(log, "\n") != 2 || strings.Count(log, "upstream unreachable") != 1 || strings.Count(log, "upstream recovered") != 1 {
					t.Errorf("log:\n%s", log)
				}
			}
		})
	}
}

// TestStartingServerIsRetriedSoon checks that what a server rejects or breaks off while it starts
// is retried soon.
func TestStartingServerIsRetriedSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newOutageBench(t, nil)
		b.source.SetDown(true)
		time.Sleep(time.Minute)
		b.change()
		for range 3 * len(b.feeds) {
			b.source.Fail("version", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("RBAC is not loaded")))
		}
		b.source.SetDown(false)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if i := slices.IndexFunc(b.feeds, b.lacks); i >= 0 {
			t.Errorf("%s is behind after 3 s", b.feeds[i].Resource().Resource)
		}
		time.Sleep(time.Second) // a watch that brings nothing of the newest version must be idle for that long
		if n := b.behind(); n > 0 {
			t.Errorf("%d collections are stale after 4 s", n)
		}
	})
}

// TestLoneFailureKeepsItsBackoff checks that one failing reflector is not sped up by healthy ones.
func TestLoneFailureKeepsItsBackoff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newOutageBench(t, func(s *cachetest.Source) source.Source { return &brokenSource{Source: s, group: "g3"} })
		b.source.Break(errors.New("reset"))
		time.Sleep(10 * time.Minute)
		if n := b.behind(); n != 1 {
			t.Errorf("%d collections are behind", n)
		}
		calls := slices.DeleteFunc(b.source.Calls(), func(c string) bool { return strings.HasPrefix(c, "watch") })
		if len(calls) > 100 {
			t.Errorf("%d calls", len(calls))
		}
		if b.logged.Len() > 0 {
			t.Errorf("log:\n%s", b.logged.String())
		}
	})
}

// TestWatchesRecoverAfterNetworkFault checks that, after a fault that broke watches while the
// server kept responding, every collection is current soon.
func TestWatchesRecoverAfterNetworkFault(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cuts := &cutSource{phase: "live", at: 1, err: errors.New("reset"), times: 1 << 30}
		b := newOutageBench(t, func(s *cachetest.Source) source.Source { cuts.Source = s; return cuts })
		b.source.Break(errors.New("reset"))
		time.Sleep(10 * time.Minute)
		cuts.mu.Lock()
		cuts.times = 0
		cuts.mu.Unlock()
		b.change()
		time.Sleep(3 * time.Second)
		if n := b.behind(); n > 0 {
			t.Errorf("%d collections are behind after 3 s", n)
		}
	})
}

// TestResumedWatchIsStaleUntilCaughtUp checks that a watch resumed after an outage leaves its
// collection stale until it has brought what happened meanwhile.
func TestResumedWatchIsStaleUntilCaughtUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newOutageBench(t, func(s *cachetest.Source) source.Source { return lateSource{s} })
		b.source.SetDown(true)
		time.Sleep(time.Minute)
		for range 20 {
			b.change()
		}
		b.source.SetDown(false)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			for _, c := range b.feeds {
				objs := b.source.Objects(c.Resource().GroupVersionResource)
				if state, rv := c.State(), fmt.Sprint(c.Snapshot().Get("a/1").RV); rv != objs[0].GetResourceVersion() && state.Phase != reflector.Stale {
					t.Fatalf("%s at %s, the upstream at %s", state.Phase, rv, objs[0].GetResourceVersion())
				}
			}
		}
		if n := b.behind(); n > 0 {
			t.Errorf("%d are behind", n)
		}
	})
}

// lateSource delays each event of a watch.
type lateSource struct{ *cachetest.Source }

func (s lateSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if !opts.SendInitialEvents {
			time.Sleep(200 * time.Millisecond)
		}
		return handle(ev)
	})
}

// brokenSource rejects resumed watches of one API group.
type brokenSource struct {
	*cachetest.Source
	group string
}

func (s *brokenSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	if res.Group == s.group && !opts.SendInitialEvents {
		return apierrors.NewServiceUnavailable("no endpoints")
	}
	return s.Source.Watch(ctx, res, enc, opts, handle)
}

// TestInterruptedStreamingListsFallBackToPages checks that pages are requested after two
// interrupted streaming lists.
func TestInterruptedStreamingListsFallBackToPages(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
		s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		m := cachetest.NewManager(t, &cutSource{Source: s, phase: "initial", at: 2, times: 100}, cache.Limits{})
		defer m.Close()
		for range 3 {
			if c, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); err == nil {
				if c.Snapshot().Len() != 1 || c.RV() != 101 {
					t.Errorf("%d objects at %d", c.Snapshot().Len(), c.RV())
				}
				break
			}
			time.Sleep(time.Second)
		}
		want := []string{
			`list pods rv="" match="" limit=1`, "watch pods rv=0 initial=true timeout=0", "watch pods rv=0 initial=true timeout=0",
			`list pods rv="" match="" limit=500`, "watch pods rv=101 initial=false timeout=0",
		}
		if calls := s.Calls(); !slices.Equal(calls, want) {
			t.Errorf("calls %q", calls)
		}
	})
}

// TestUpgradedServerIsRelisted checks that everything is relisted if another program serves the
// source, because it may encode the same versions differently, and that one request detects this
// for all.
func TestUpgradedServerIsRelisted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newOutageBench(t, nil)
		lists := func() (n int) {
			for _, c := range b.source.Calls() {
				if strings.Contains(c, "initial=true") {
					n++
				}
			}
			return n
		}
		requested := b.source.Requested()
		b.source.Break(nil)
		time.Sleep(5 * time.Second)
		if n := lists(); n != 0 {
			t.Errorf("%d lists although the server is the same", n)
		}
		if n := b.source.Requested() - requested; n > len(b.feeds) {
			t.Errorf("%d requests", n)
		}
		b.source.SetServer("2")
		b.source.Break(nil)
		time.Sleep(5 * time.Second)
		if n := lists(); n != len(b.feeds) {
			t.Errorf("%d lists after an upgrade", n)
		}
		if n := b.behind(); n > 0 {
			t.Errorf("%d are behind", n)
		}
		b.source.Break(nil)
		time.Sleep(5 * time.Second)
		if n := lists(); n != 0 {
			t.Errorf("%d lists again", n)
		}
	})
}
