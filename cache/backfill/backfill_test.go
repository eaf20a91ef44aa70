package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// bench is a source of pods with a past, and a collection that does not have it.
type bench struct {
	*cachetest.Source
	t       *testing.T
	res     *source.Resource
	wrapped source.Source
	manager *cache.Manager
	metrics *prometheus.Registry
	c       *cache.Collection
}

// withBench runs f in fake time. past writes to the source before the collection begins. Its history
// begins at the version after, so that there is a bookmark at that version only.
func withBench(t *testing.T, limits cache.Limits, past func(*bench), f func(*testing.T, *bench)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		b := &bench{Source: cachetest.New(cachetest.PodResource()), t: t, res: cachetest.PodResource(), metrics: prometheus.NewRegistry()}
		b.wrapped = b.Source
		past(b)
		b.Bump(1)
		b.start(limits)
		defer func() { b.manager.Close() }()
		f(t, b)
	})
}

func (b *bench) start(limits cache.Limits) {
	b.t.Helper()
	var err error
	b.manager, err = cache.NewManager(cache.Options{Source: b.wrapped, Limits: limits, Registerer: b.metrics, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.t.Fatal(err)
	}
	b.c = cachetest.Collection(b.t, b.manager, b.res, api.JSON)
	synctest.Wait()
	b.Calls()
}

func (b *bench) create(key string, labels ...string) {
	b.Create(cachetest.Pods, cachetest.Pod(key, "", labels...))
}

func (b *bench) update(key string, labels ...string) {
	b.Update(cachetest.Pods, cachetest.Pod(key, "", labels...))
}

func (b *bench) remove(keys ...string) { b.DeleteTogether(cachetest.Pods, keys...) }

// usual writes versions 101 to 106.
func usual(b *bench) {
	b.create("ns/a", "app=x")
	b.create("ns/b")
	b.update("ns/a", "app=y")
	b.update("ns/b", "app=x")
	b.remove("ns/a")
	b.create("ns/a", "app=x")
}

func (b *bench) filter(label string) *object.Filter {
	return cachetest.Filter(b.t, b.res, "", label, "")
}

// watch starts a watch as package watch does, and returns its events.
func (b *bench) watch(ctx context.Context, from uint64, f *object.Filter) (string, error) {
	w, err := b.c.Mux().Watch(from, f, func() {})
	if errors.Is(err, watchmux.ErrExpired) {
		if err := b.c.Backfill(ctx, from, f); err != nil {
			return "", err
		}
		w, err = b.c.Mux().Watch(from, f, func() {})
	}
	if err != nil {
		return "", err
	}
	defer w.Stop()
	deliveries, _, err := w.Next(nil, 10_000)
	var out []string
	for _, d := range deliveries {
		out = append(out, fmt.Sprintf("%s %s@%d", d.Type, d.Object.Key, d.RV))
	}
	return strings.Join(out, " "), err
}

func (b *bench) expect(from uint64, label, want string) {
	b.t.Helper()
	got, err := b.watch(b.t.Context(), from, b.filter(label))
	if err != nil || got != want {
		b.t.Errorf("%q from %d: %q, %v\nwant %q", label, from, got, err, want)
	}
}

// expectCalls checks the requests of backfills.
func (b *bench) expectCalls(want ...string) {
	b.t.Helper()
	var calls []string
	for _, call := range b.Calls() {
		if strings.HasPrefix(call, "watch") && !strings.HasSuffix(call, "timeout=0") || strings.Contains(call, "Exact") {
			calls = append(calls, call)
		}
	}
	if got := strings.Join(calls, "\n"); got != strings.Join(want, "\n") {
		b.t.Errorf("requests:\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func watchFrom(from int) string {
	return fmt.Sprintf("watch pods rv=%d initial=false timeout=3", from)
}

// results returns the results that were counted.
func (b *bench) results() string {
	b.t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != "kubeweir_cache_backfills_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "result" && m.Counter.GetValue() > 0 {
					out = append(out, fmt.Sprintf("%s=%g", l.GetValue(), m.Counter.GetValue()))
				}
			}
		}
	}
	return strings.Join(out, " ")
}

func (b *bench) expectResults(want string) {
	b.t.Helper()
	if got := b.results(); got != want {
		b.t.Errorf("results %q, want %q", got, want)
	}
}

func TestExtend(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.expect(102, "", "MODIFIED ns/a@103 MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.expectCalls(watchFrom(102))
		b.expect(103, "", "MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.expectCalls()
		b.expect(100, "", "ADDED ns/a@101 ADDED ns/b@102 MODIFIED ns/a@103 MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.expectCalls(watchFrom(100))
		b.expectResults("done=2")
		if n := testutil.CollectAndCount(b.metrics, "kubeweir_cache_backfilled_events_total"); n != 1 {
			t.Errorf("%d series of events", n)
		}
		if wrong := b.c.CheckInvariants(); wrong != "" {
			t.Error(wrong)
		}
	})
}

func TestSelectorsNeedPreviousStates(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.expect(102, "app=x", "DELETED ns/a@103 ADDED ns/b@104 ADDED ns/a@106")
		const list = `list pods rv="102" match="Exact" limit=0`
		b.expectCalls(watchFrom(102), list, list)
		b.expect(102, "app=y", "ADDED ns/a@103 DELETED ns/a@105")
		b.expect(102, "app", "MODIFIED ns/a@103 ADDED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.expectCalls()
		b.expect(101, "app=x", "DELETED ns/a@103 ADDED ns/b@104 ADDED ns/a@106")
		b.expectCalls(watchFrom(101))
	})
}

func TestManyPreviousStatesAreListedInPages(t *testing.T) {
	const pods = 20
	past := func(b *bench) {
		for i := range pods {
			b.create(fmt.Sprintf("ns/%02d", i), "app=x")
		}
		for i := range pods {
			b.update(fmt.Sprintf("ns/%02d", i))
		}
	}
	withBench(t, cache.Limits{}, past, func(t *testing.T, b *bench) {
		got, err := b.watch(t.Context(), 100+pods, b.filter("app=x"))
		if err != nil || strings.Count(got, "DELETED") != pods {
			t.Errorf("%s, %v", got, err)
		}
		b.expectCalls(watchFrom(100+pods), `list pods rv="120" match="Exact" limit=500`)
	})
}

// TestPreviousStatesAreCompacted checks that a watch with a selector fails, but not as expired, and
// others are served.
func TestPreviousStatesAreCompacted(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.expect(102, "", "MODIFIED ns/a@103 MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.Compact()
		if got, err := b.watch(t.Context(), 102, b.filter("app=x")); err == nil || source.IsExpired(err) {
			t.Errorf("%s, %v", got, err)
		}
		b.expect(104, "app=x", "ADDED ns/a@106")
		b.expectResults("done=1 expired=1")
	})
}

// TestSharedVersion checks that the history begins with all changes of a version, at which the
// collection was listed.
func TestSharedVersion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := &bench{Source: cachetest.New(cachetest.PodResource()), t: t, res: cachetest.PodResource(), metrics: prometheus.NewRegistry()}
		b.wrapped = b.Source
		usual(b)
		b.remove("ns/a", "ns/b")
		b.start(cache.Limits{})
		defer b.manager.Close()
		b.expect(105, "", "ADDED ns/a@106 DELETED ns/a@107 DELETED ns/b@107")
		b.expectCalls(watchFrom(105))
	})
}

// TestLastEventIsAtBeginningOfHistory checks that the history is extended without a bookmark, which
// kube-apiserver does not send at the version of the last event.
func TestLastEventIsAtBeginningOfHistory(t *testing.T) {
	for waits, last := range map[time.Duration]func(*bench){
		0:               func(*bench) {},
		3 * time.Second: func(b *bench) { b.remove("ns/a", "ns/b") },
	} {
		bubble.Test(t, func(t *testing.T) {
			b := &bench{Source: cachetest.New(cachetest.PodResource()), t: t, res: cachetest.PodResource(), metrics: prometheus.NewRegistry()}
			b.wrapped = b.Source
			usual(b)
			last(b)
			b.start(cache.Limits{})
			defer b.manager.Close()
			b.HoldBookmarks(true)
			began := time.Now()
			want := "ADDED ns/a@106"
			if waits > 0 {
				want += " DELETED ns/a@107 DELETED ns/b@107"
			}
			b.expect(105, "", want)
			if waited := time.Since(began); waited != waits {
				t.Errorf("waited %v, want %v", waited, waits)
			}
		})
	}
}

func TestLaterEventEndsBackfillWithoutBookmark(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.HoldBookmarks(true)
		b.update("ns/b") // 108
		synctest.Wait()
		began := time.Now()
		b.expect(105, "", "ADDED ns/a@106 MODIFIED ns/b@108")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestExpired(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.Compact()
		b.update("ns/b")
		if got, err := b.watch(t.Context(), 102, nil); !source.IsExpired(err) {
			t.Errorf("%s, %v", got, err)
		}
		b.expectResults("expired=1")
	})
}

// TestWithoutBookmarks checks that nothing is served that may be incomplete, and that the next callers
// do not wait.
func TestWithoutBookmarks(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.HoldBookmarks(true)
		for range 2 {
			if got, err := b.watch(t.Context(), 102, nil); !errors.Is(err, source.ErrNoBookmark) {
				t.Errorf("%s, %v", got, err)
			}
		}
		b.expectCalls(watchFrom(102), strings.Replace(watchFrom(105), "=3", "=5", 1))
		b.expectResults("failed=1")
		b.HoldBookmarks(false)
		time.Sleep(2 * time.Minute)
		b.expect(105, "", "ADDED ns/a@106")
	})
}

func TestEventsAreNotBackfilled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		res := cachetest.PodResource()
		res.GroupVersionResource.Resource = "events"
		s := cachetest.New(res)
		m := cachetest.NewManager(t, s, cache.Limits{})
		defer m.Close()
		c := cachetest.Collection(t, m, res, api.JSON)
		synctest.Wait()
		s.Calls()
		if err := c.Backfill(t.Context(), 99, nil); !errors.Is(err, source.ErrNoBookmark) || len(s.Calls()) > 0 {
			t.Error(err)
		}
	})
}

func TestNoRoom(t *testing.T) {
	withBench(t, cache.Limits{HistoryEvents: 3}, usual, func(t *testing.T, b *bench) {
		if got, err := b.watch(t.Context(), 102, nil); !errors.Is(err, watchmux.ErrNoRoom) {
			t.Errorf("%s, %v", got, err)
		}
		b.expect(103, "", "MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
		b.Calls()
		if got, err := b.watch(t.Context(), 102, nil); !errors.Is(err, watchmux.ErrNoRoom) {
			t.Errorf("%s, %v", got, err)
		}
		b.expectCalls()
	})
}

// TestNoRoomIsRemembered checks that events for which there is no room are read once a minute, and that
// other callers do not suffer from it until there are many such versions.
func TestNoRoomIsRemembered(t *testing.T) {
	withBench(t, cache.Limits{HistoryEvents: 5}, usual, func(t *testing.T, b *bench) {
		for range 2 {
			for range 9 {
				if got, err := b.watch(t.Context(), 100, nil); !errors.Is(err, watchmux.ErrNoRoom) {
					t.Errorf("%s, %v", got, err)
				}
			}
			b.expectCalls(watchFrom(100))
			time.Sleep(time.Minute)
		}
		for from := uint64(80); from < 101; from++ {
			if got, err := b.watch(t.Context(), from, nil); !errors.Is(err, watchmux.ErrNoRoom) {
				t.Errorf("%s, %v", got, err)
			}
		}
		if n := len(b.Calls()); n > 20 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(time.Minute)
		b.expect(102, "", "MODIFIED ns/a@103 MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106")
	})
}

// TestCallersShareRuns checks that callers that wait together cost one watch, and that those that
// come later with an older version cost a second one.
func TestCallersShareRuns(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		done := make(chan error, 20)
		call := func(rv uint64) { go func() { done <- b.c.Backfill(t.Context(), rv, nil) }() }
		call(104)
		synctest.Wait()
		for i := range uint64(9) {
			call(102 + i/3)
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		b.expectCalls(watchFrom(104), watchFrom(102))
	})
}

// TestExpiredCallersDoNotHurtOthers checks that callers whose version the upstream still has are
// served when others are not, with few watches.
func TestExpiredCallersDoNotHurtOthers(t *testing.T) {
	past := func(b *bench) {
		b.create("ns/a")
		for range 39 {
			b.update("ns/a")
		}
		b.Compact() // at 140
		for range 24 {
			b.update("ns/a")
		}
	}
	withBench(t, cache.Limits{}, past, func(t *testing.T, b *bench) {
		type result struct {
			rv  uint64
			err error
		}
		done := make(chan result, 64)
		for rv := uint64(164); rv > 100; rv-- {
			go func() { done <- result{rv, b.c.Backfill(t.Context(), rv, nil)} }()
			if rv == 164 {
				synctest.Wait() // it waits for a bookmark, and the others for the next step
			}
		}
		for range 64 {
			if r := <-done; (r.err == nil) != (r.rv >= 140) || r.err != nil && !source.IsExpired(r.err) {
				t.Errorf("from %d: %v", r.rv, r.err)
			}
		}
		if n := len(b.Calls()); n > 10 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestCancellation(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.HoldBookmarks(true)
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- b.c.Backfill(first, 102, nil) }()
		go func() { done <- b.c.Backfill(second, 103, nil) }()
		synctest.Wait()
		cancelFirst()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if n := b.Watches(); n != 2 {
			t.Errorf("%d watches, one waits", n)
		}
		cancelSecond()
		<-done
		synctest.Wait()
		if n := b.Watches(); n != 1 {
			t.Errorf("%d watches, nobody waits", n)
		}
		b.expectResults("abandoned=1")
		b.HoldBookmarks(false)
		b.expect(105, "", "ADDED ns/a@106") // at once, a canceled one is no failure
	})
}

// TestCloseEndsBackfills checks that callers get the reason, also those that come later.
func TestCloseEndsBackfills(t *testing.T) {
	withBench(t, cache.Limits{}, usual, func(t *testing.T, b *bench) {
		b.HoldBookmarks(true)
		done := make(chan error, 1)
		go func() { done <- b.c.Backfill(t.Context(), 102, nil) }()
		synctest.Wait()
		b.manager.Close()
		if err := <-done; !errors.Is(err, store.ErrManagerClosed) {
			t.Error(err)
		}
		if n := b.Watches(); n != 0 {
			t.Errorf("%d watches", n)
		}
		if err := b.c.Backfill(t.Context(), 102, nil); !errors.Is(err, store.ErrStopped) {
			t.Error(err)
		}
	})
}

// TestAtMostFourCollections checks the number of runs at a time.
func TestAtMostFourCollections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var all []*source.Resource
		for i := range 6 {
			res := cachetest.WidgetResource()
			res.GroupVersionResource.Resource = fmt.Sprintf("widgets%d", i)
			all = append(all, res)
		}
		s := cachetest.New(all...)
		s.Bump(10)
		m := cachetest.NewManager(t, s, cache.Limits{})
		defer m.Close()
		done := make(chan error)
		for _, res := range all {
			c := cachetest.Collection(t, m, res, api.JSON)
			go func() { done <- c.Backfill(t.Context(), 105, nil) }()
		}
		synctest.Wait()
		if n := s.Watches(); n != 6+4 {
			t.Errorf("%d watches", n)
		}
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
