package cache_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
)

func TestConcurrentCallersShareOneStart(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		got := make([]*cache.Collection, 50)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i] = cachetest.PodCollection(t, m) })
		}
		wg.Wait()
		for _, c := range got {
			if c != got[0] {
				t.Error("callers got different collections")
			}
		}
		if calls := s.Calls(); len(calls) != 2 {
			t.Errorf("calls: %q", calls)
		}
		if n := s.Watches(); n != 1 {
			t.Errorf("%d watches", n)
		}
	})
}

func TestEachEncodingHasItsOwnReflector(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		pod := s.Create(cachetest.Pods, cachetest.Pod("a/1", "n"))
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			c := cachetest.Collection(t, m, cachetest.PodResource(), enc)
			if o := c.Snapshot().Get("a/1"); o == nil || string(o.Raw) != string(cachetest.Encode(pod, enc)) {
				t.Errorf("%s: %v", enc, o)
			}
			if c.Encoding() != enc || c.Resource().Resource != "pods" {
				t.Errorf("collection of %s in %s", c.Resource().Resource, c.Encoding())
			}
		}
		nodes := cachetest.Collection(t, m, cachetest.NodeResource(), api.JSON)
		if meta := nodes.ListMeta(); meta.Kind != "NodeList" || meta.APIVersion != "v1" {
			t.Errorf("list kind %s %s", meta.APIVersion, meta.Kind)
		}
		status := m.Status()
		var lines []string
		for _, st := range status {
			lines = append(lines, fmt.Sprintf("%s %s %s rv=%d objects=%d", st.Resource.Resource, st.Encoding, st.State.Phase, st.RV, st.Objects))
		}
		want := "nodes json synced rv=101 objects=0, pods json synced rv=101 objects=1, pods protobuf synced rv=101 objects=1"
		if got := strings.Join(lines, ", "); got != want {
			t.Errorf("status: %s", got)
		}
	})
}

func TestCountObjects(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		pods := cachetest.PodResource().GroupResource()
		s.Create(cachetest.Pods, cachetest.Pod("a/1", "n"))
		if _, _, known := m.CountObjects(pods); known {
			t.Error("counted without a collection")
		}
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			c := cachetest.Collection(t, m, cachetest.PodResource(), enc)
			objects, bytes, known := m.CountObjects(pods)
			if want := c.Snapshot().Bytes(); objects != 1 || bytes != want || !known {
				t.Errorf("with %s: %d, %d, %v; want one of %d bytes", enc, objects, bytes, known, want)
			}
		}
	})
}

// TestWaitersForStartsAreLimited checks the limit on requests that wait for a collection that
// cannot start.
func TestWaitersForStartsAreLimited(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{StartWaiters: 3}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.SetSilent(true)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { cachetest.PodCollection(t, m) })
		}
		synctest.Wait()
		_, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON)
		if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds < 1 {
			t.Errorf("the fourth caller got %v", err)
		}
		s.SetSilent(false)
		wg.Wait()
		cachetest.PodCollection(t, m)
	})
}

// TestConcurrentListsAreLimited checks that lists beyond the limit wait for one another.
func TestConcurrentListsAreLimited(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{ColdStarts: 1}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		blocked := make(chan struct{})
		slow := &slowSource{Source: s, listing: blocked}
		m2 := cachetest.NewManager(t, slow, cache.Limits{ColdStarts: 1})
		defer m2.Close()
		var wg sync.WaitGroup
		for _, res := range []*source.Resource{cachetest.PodResource(), cachetest.NodeResource(), cachetest.WidgetResource()} {
			wg.Go(func() {
				if _, err := m2.Collection(t.Context(), res, api.JSON); err != nil {
					t.Error(err)
				}
			})
		}
		for range 3 {
			synctest.Wait()
			if slow.open != 1 {
				t.Errorf("%d lists at the same time", slow.open)
			}
			blocked <- struct{}{}
		}
		wg.Wait()
	})
}

// slowSource delays the end of a streaming list until the test releases it.
type slowSource struct {
	*cachetest.Source
	listing chan struct{}
	open    int
}

func (s *slowSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.InitialEventsEnd {
			s.open++
			<-s.listing
			s.open--
		}
		return handle(ev)
	})
}

func TestStartContinuesWithoutItsCaller(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.SetSilent(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Collection(ctx, cachetest.PodResource(), api.JSON); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		s.SetSilent(false)
		cachetest.PodCollection(t, m) // the start continued without its caller
		if n := len(s.Calls()); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestFailedStartIsReportedWhileRetrying(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.SetDown(true)
		began := time.Now()
		if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); !errors.Is(err, cachetest.ErrDown) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the error was returned after %s", took)
		}
		// From now on the error is immediate, while the reflector keeps trying.
		s.Calls()
		if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); !errors.Is(err, cachetest.ErrDown) {
			t.Errorf("got %v", err)
		}
		if calls := s.Calls(); len(calls) != 0 {
			t.Errorf("calls: %q", calls)
		}
		if status := m.Status(); status[0].State.Phase != reflector.Starting || status[0].State.Err == nil {
			t.Errorf("status: %+v", status)
		}
		s.SetDown(false)
		time.Sleep(time.Minute)
		cachetest.PodCollection(t, m)
	})
}

// TestUndecodableObjectStopsCollection checks that a collection that cannot decode an object stops,
// because it would be incomplete, and is not restarted for each request.
func TestUndecodableObjectStopsCollection(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
				bad := &spoiledSource{Source: s}
				m := cachetest.NewManager(t, bad, cache.Limits{})
				defer m.Close()
				var c *cache.Collection
				if live {
					c = cachetest.PodCollection(t, m)
				}
				bad.spoil = true
				s.Create(cachetest.Pods, cachetest.Pod("a/1", "n"))
				synctest.Wait()
				for range 3 {
					if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); err == nil || !strings.Contains(err.Error(), "cannot decode") {
						t.Errorf("got %v", err)
					}
				}
				if calls := s.Calls(); len(calls) != 2 {
					t.Errorf("calls: %q", calls)
				}
				if live {
					<-c.Closed()
					if st := c.State(); st.Phase != reflector.Stopped || st.Err == nil {
						t.Errorf("state %+v", st)
					}
				}
				bad.spoil = false
				time.Sleep(2 * time.Minute)
				if cachetest.PodCollection(t, m).Snapshot().Len() != 1 {
					t.Error("not started again later")
				}
			})
		})
	}
}

// spoiledSource truncates objects.
type spoiledSource struct {
	*cachetest.Source
	spoil bool
}

func (s *spoiledSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if s.spoil && ev.Type != api.Bookmark && len(ev.Object) > 0 {
			ev.Object = ev.Object[:len(ev.Object)/2]
		}
		return handle(ev)
	})
}

// TestRepeatedRewindsEndRelisting checks that a source that goes back repeatedly is not listed
// forever.
func TestRepeatedRewindsEndRelisting(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		b := s.Backup()
		for attempt := range 3 {
			s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
			c, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON)
			if attempt == 2 {
				if !errors.Is(err, store.ErrRewound) {
					t.Errorf("the third start: %v", err)
				}
				time.Sleep(2 * time.Minute)
				cachetest.PodCollection(t, m)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Rewind(b)
			<-c.Closed()
			synctest.Wait()
		}
	})
}

// TestConcurrentReaders is for the race detector: it does everything that readers do while the
// reflector writes.
func TestConcurrentReaders(t *testing.T) {
	s := cachetest.New(cachetest.PodResource())
	for i := range 300 {
		s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns/%d", i), "n1", "a=1"))
	}
	m := cachetest.NewManager(t, s, cache.Limits{})
	defer m.Close()
	c := cachetest.PodCollection(t, m)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			f := cachetest.Filter(t, c.Resource(), "", fmt.Sprintf("a=%d", i%2), "")
			for {
				select {
				case <-done:
					return
				default:
				}
				v := c.Snapshot()
				c.Retain(v)
				if n := len(cachetest.All(v, "", "")); n != v.Len() {
					t.Errorf("%d objects, Len says %d", n, v.Len())
				}
				if old, err := c.SnapshotAt(v.RV() - 3); err == nil && len(cachetest.All(old, "", "")) != old.Len() {
					t.Error("an old snapshot has another length than Len says")
				}
				if objs, at := c.Select(t.Context(), f); at != nil && !slices.IsSortedFunc(objs, func(a, b *object.Object) int { return cmp.Compare(a.Key, b.Key) }) {
					t.Error("not in order")
				}
				if _, err := m.Collection(t.Context(), c.Resource(), api.JSON); err != nil {
					t.Error(err)
				}
				c.State()
				m.Status()
			}
		})
	}
	for i := range 1000 {
		switch key := fmt.Sprintf("ns/%d", i%250); i % 5 {
		case 0:
			s.Delete(cachetest.Pods, key)
			s.Create(cachetest.Pods, cachetest.Pod(key, "n2", "a=0"))
		default:
			s.Update(cachetest.Pods, cachetest.Pod(key, "n3", fmt.Sprintf("a=%d", i%3)))
		}
	}
	if err := c.WaitFor(t.Context(), s.Revision(), time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := c.Fresh(t.Context()); err != nil {
		t.Error(err)
	}
	close(done)
	wg.Wait()
	if broken := c.CheckInvariants(); broken != "" {
		t.Error(broken)
	}
}

func TestIdleCollectionStops(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{IdleAfter: 10 * time.Minute}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		for range 3 {
			time.Sleep(9 * time.Minute)
			if cachetest.PodCollection(t, m) != c {
				t.Fatal("stopped although it was used")
			}
		}
		w, err := c.Mux().Watch(c.RV(), nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if c.State().Phase != reflector.Synced {
			t.Fatal("stopped although it was watched")
		}
		w.Stop()
		time.Sleep(11 * time.Minute)
		select {
		case <-c.Closed():
		default:
			t.Fatal("not stopped although it was idle")
		}
		if st := c.State(); !errors.Is(st.Err, store.ErrIdle) || st.Phase != reflector.Stopped {
			t.Errorf("state %+v", st)
		}
		if s.Watches() != 0 || len(m.Status()) != 0 {
			t.Errorf("%d watches, status %+v", s.Watches(), m.Status())
		}
		if cachetest.PodCollection(t, m) == c {
			t.Error("got a stopped collection")
		}
	})
}

func TestIdleCollectionStaysDuringOutage(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{IdleAfter: 10 * time.Minute}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		s.SetDown(true)
		time.Sleep(time.Hour)
		select {
		case <-c.Closed():
			t.Fatal("stopped during an outage")
		default:
		}
		s.SetDown(false)
		time.Sleep(12 * time.Minute)
		select {
		case <-c.Closed():
		default:
			t.Fatal("not stopped although it was idle after the outage")
		}
	})
}

func TestDropStopsCollection(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		nodes := cachetest.Collection(t, m, cachetest.NodeResource(), api.JSON)
		notified := 0
		w, err := c.Mux().Watch(c.RV(), nil, func() { notified++ })
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Next(nil, 10); err != nil {
			t.Fatal(err)
		}
		m.Drop(cachetest.Pods, source.ErrRedefined)
		if _, _, err := w.Next(nil, 10); notified != 1 || !errors.Is(err, source.ErrRedefined) {
			t.Errorf("notified %d times, the watch ended with %v", notified, err)
		}
		if _, err := c.Mux().Watch(c.RV(), nil, func() {}); err == nil {
			t.Error("a stopped collection can be watched")
		}
		if nodes.State().Phase != reflector.Synced {
			t.Error("another collection was stopped, too")
		}
		if next := cachetest.PodCollection(t, m); next == c || next.State().Phase != reflector.Synced {
			t.Error("not started again")
		}
	})
}

// TestDropWhileStartingGivesNextCollection checks that callers that wait for a collection that is
// dropped get the next one.
func TestDropWhileStartingGivesNextCollection(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.SetSilent(true)
		var wg sync.WaitGroup
		wg.Go(func() { cachetest.PodCollection(t, m) })
		synctest.Wait()
		m.Drop(cachetest.Pods, source.ErrRedefined)
		s.SetSilent(false)
		wg.Wait()
	})
}

// TestCallersGetTheirOwnDefinition checks that no caller gets a collection of another definition
// than its own, and that none is created with an outdated one, whichever caller waited for it.
func TestCallersGetTheirOwnDefinition(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		old := cachetest.WidgetResource()
		s.SetSilent(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			if c, err := m.Collection(t.Context(), old, api.JSON); !errors.Is(err, source.ErrRedefined) {
				t.Errorf("a caller that waited while the definition changed: %v, %v", c, err)
			}
		})
		synctest.Wait()
		old.Retire()
		m.Drop(cachetest.Widgets, errors.New("the definition changed"))
		s.SetSilent(false)
		wg.Wait()
		late := func() {
			t.Helper()
			if c, err := m.Collection(t.Context(), old, api.JSON); !errors.Is(err, source.ErrRedefined) {
				t.Errorf("a late caller with the old definition: %v, %v", c, err)
			}
			for range 3 {
				if m.CollectionIfSynced(old, api.JSON) != nil {
					t.Error("a late caller started a collection with the old definition")
				}
			}
		}
		late()
		fresh := cachetest.WidgetResource()
		fresh.Schema = object.CustomSchema([]string{".spec.size"})
		c, err := m.Collection(t.Context(), fresh, api.JSON)
		if err != nil || c.Resource() != fresh {
			t.Fatalf("a collection of the new definition: %v", err)
		}
		late()
		// Nor the other way round, while the old collection still exists.
		newest := cachetest.WidgetResource()
		if c, err := m.Collection(t.Context(), newest, api.JSON); !errors.Is(err, source.ErrRedefined) {
			t.Errorf("an early caller: %v, %v", c, err)
		}
	})
}

func TestCloseStopsCollections(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		m.Close()
		<-c.Closed()
		if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); !errors.Is(err, store.ErrManagerClosed) {
			t.Errorf("got %v", err)
		}
		if err := c.WaitFor(t.Context(), c.RV()+1, time.Second); !errors.Is(err, store.ErrManagerClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestManagerMetrics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := cachetest.New(cachetest.PodResource(), cachetest.NodeResource())
		r := prometheus.NewPedanticRegistry()
		m, err := cache.NewManager(cache.Options{Source: s, Registerer: r, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := cache.NewManager(cache.Options{Source: s, Registerer: r}); err == nil {
			t.Error("registered twice")
		}
		s.Create(cachetest.Pods, cachetest.Pod("a/1", "n"))
		c := cachetest.PodCollection(t, m)
		s.Create(cachetest.Pods, cachetest.Pod("a/2", "n"))
		synctest.Wait() // the event arrives, and again after the break: others may share its version
		s.Break(nil)
		time.Sleep(time.Second)
		s.SetSilent(true)
		time.Sleep(40 * time.Second)
		if c.Snapshot().Len() != 2 {
			t.Fatal("not synced")
		}
		// Another version of the same resource has the same labels.
		other := cachetest.PodResource()
		other.Version = "v2"
		other.Schema = c.Resource().Schema
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Collection(ctx, other, api.JSON); err == nil {
			t.Fatal("started while the source is silent")
		}
		err = testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kubeweir_cache_feed_events_total Events received from upstream watches, by type; bookmarks and initial lists are not counted.
# TYPE kubeweir_cache_feed_events_total counter
kubeweir_cache_feed_events_total{encoding="json",group="",resource="pods",type="ADDED"} 2
# HELP kubeweir_cache_feed_lag_seconds Time since the upstream watch last received data or a heartbeat, or since it broke.
# TYPE kubeweir_cache_feed_lag_seconds gauge
kubeweir_cache_feed_lag_seconds{encoding="json",group="",resource="pods"} 41
# HELP kubeweir_cache_feed_restarts_total Upstream watches of reflectors that ended, by reason.
# TYPE kubeweir_cache_feed_restarts_total counter
kubeweir_cache_feed_restarts_total{encoding="json",group="",reason="ended",resource="pods"} 1
# HELP kubeweir_cache_feed_synced 1 if the collection is synced, 0 if it is starting, stale or stopped.
# TYPE kubeweir_cache_feed_synced gauge
kubeweir_cache_feed_synced{encoding="json",group="",resource="pods"} 0
# HELP kubeweir_cache_history_events Events retained for watches from older versions and lists at an exact version.
# TYPE kubeweir_cache_history_events gauge
kubeweir_cache_history_events{encoding="json",group="",resource="pods"} 1
# HELP kubeweir_cache_objects Objects held.
# TYPE kubeweir_cache_objects gauge
kubeweir_cache_objects{encoding="json",group="",resource="pods"} 2
`), "kubeweir_cache_objects", "kubeweir_cache_feed_events_total", "kubeweir_cache_feed_restarts_total",
			"kubeweir_cache_feed_synced", "kubeweir_cache_feed_lag_seconds", "kubeweir_cache_history_events")
		if err != nil {
			t.Error(err)
		}
		problems, err := testutil.GatherAndLint(r)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
	})
}

// TestMinorReleaseOfServer checks which releases are recognized.
func TestMinorReleaseOfServer(t *testing.T) {
	for version, want := range map[string]int{
		`{"gitVersion":"v1.30.14"}`: 30, `{"gitVersion":"v1.29"}`: 29, `{"gitVersion":"v1.31.0-eks-a1"}`: 31, `{"gitVersion":"v1.36+"}`: 0,
		`{"gitVersion":"v2.1.0"}`: 0, `{"gitVersion":"v1.-3.0"}`: 0, `{"gitVersion":1}`: 0, `{}`: 0, `here`: 0, ``: 0,
	} {
		s := cachetest.New(cachetest.PodResource())
		s.SetServer(version)
		manager := cachetest.NewManager(t, s, cache.Limits{})
		if got := manager.Minor(t.Context()); got != want {
			t.Errorf("%s: %d, want %d", version, got, want)
		}
		manager.Close()
	}
}

// TestWantedTwiceStartsCollection checks that a collection wanted twice within a minute is started.
func TestWantedTwiceStartsCollection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		res := cachetest.PodResource()
		source := cachetest.New(res)
		manager := cachetest.NewManager(t, source, cache.Limits{})
		defer manager.Close()
		for range 3 {
			if c := manager.CollectionIfSynced(res, api.JSON); c != nil {
				t.Error("got a collection that was not started")
			}
			time.Sleep(time.Minute)
		}
		if calls := source.Calls(); len(calls) > 0 {
			t.Errorf("started by reads a minute apart: %v", calls)
		}
		manager.CollectionIfSynced(res, api.JSON)
		time.Sleep(59 * time.Second)
		if c := manager.CollectionIfSynced(res, api.JSON); c != nil {
			t.Error("the second call waited")
		}
		synctest.Wait()
		if c := manager.CollectionIfSynced(res, api.JSON); c == nil {
			t.Error("not started by the second call")
		}
		if c := manager.CollectionIfSynced(res, api.Protobuf); c != nil {
			t.Error("another encoding was started, too")
		}
		source.SetDown(true)
		time.Sleep(10 * time.Second)
		if c := manager.CollectionIfSynced(res, api.JSON); c != nil {
			t.Error("got a collection that is not synced")
		}
	})
}

// TestReflectorPanicStopsCollection checks that a collection whose reflector panics stops, that its
// watches end, and that the next one does not start at once, because it would panic as well.
func TestReflectorPanicStopsCollection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		source := &panickingSource{Source: cachetest.New(cachetest.PodResource())}
		m := cachetest.NewManager(t, source, cache.Limits{})
		defer m.Close()
		c := cachetest.PodCollection(t, m)
		ended := make(chan struct{}, 1)
		w, err := c.Mux().Watch(c.RV(), nil, func() { ended <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Next(nil, 1); err != nil {
			t.Fatal(err)
		}
		source.fatal = true
		source.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		<-ended
		if _, _, err := w.Next(nil, 1); err == nil {
			t.Error("the watch has not ended")
		}
		<-c.Closed()
		calls := len(source.Calls())
		for range 10 {
			if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); err == nil {
				t.Error("got a collection whose reflector panicked")
			}
		}
		if n := len(source.Calls()); n > 0 {
			t.Errorf("%d calls after the panic, %d before", n, calls)
		}
		source.fatal = false
		time.Sleep(90 * time.Second)
		if v := cachetest.PodCollection(t, m).Snapshot(); v.Get("a/1") == nil {
			t.Error("the collection did not start again")
		}
	})
}

// panickingSource panics while a watch is read.
type panickingSource struct {
	*cachetest.Source
	fatal bool
}

func (s *panickingSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if s.fatal && ev.Type == api.Added {
			panic("while reading")
		}
		return handle(ev)
	})
}
