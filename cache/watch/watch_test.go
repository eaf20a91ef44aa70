package watch_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// TestNamespacedWatchOfClusterScopedResourceIsForwarded checks that such watches, like such lists,
// are forwarded for rejection.
func TestNamespacedWatchOfClusterScopedResourceIsForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b, res := newWatchBench(t, cache.Limits{}), cachetest.NodeResource()
		manager := cachetest.NewManager(t, cachetest.New(res), cache.Limits{})
		t.Cleanup(manager.Close)
		c := cachetest.Collection(t, manager, res, api.JSON)
		_, _, err := b.watches.Watch(t.Context(), c, &watch.Request{Filter: &object.Filter{Namespace: "a"}, Options: api.ListOptions{Watch: true, ResourceVersion: "1"}})
		if !errors.Is(err, read.ErrForward) {
			t.Errorf("%v, want ErrForward", err)
		}
	})
}

func TestWatchInitialEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/b") // 101
		b.pod("default/a") // 102
		w := b.watch(initial, api.Representation{})
		defer w.stop()
		expect(t, w.lines(t), "ADDED default/a@102", "ADDED default/b@101", "BOOKMARK end@102")
		b.update("default/a")
		b.source.Delete(cachetest.Pods, "default/b")
		expect(t, w.lines(t), "MODIFIED default/a@103", "DELETED default/b@104")

		unmarked := b.watch("resourceVersion=0", api.Representation{})
		defer unmarked.stop()
		expect(t, unmarked.lines(t), "ADDED default/a@103")

		// Without sendInitialEvents there is no such annotation, although bookmarks are allowed.
		zero := b.watch("resourceVersion=00&allowWatchBookmarks=true", api.Representation{})
		defer zero.stop()
		expect(t, zero.lines(t), "ADDED default/a@103")
		b.update("default/a")
		expect(t, zero.lines(t), "MODIFIED default/a@105")
	})
}

func TestWatchManyInitialEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		var want []string
		for i := range 1000 {
			rv := b.pod(fmt.Sprintf("default/p%04d", i))
			want = append(want, fmt.Sprintf("ADDED default/p%04d@%d", i, rv))
		}
		w := b.watch(initial, api.Representation{})
		defer w.stop()
		expect(t, w.lines(t), append(want, fmt.Sprintf("BOOKMARK end@%d", b.c.RV()))...)
	})
}

func TestWatchFromVersion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		first := b.pod("default/a")
		b.pod("default/b")
		w := b.watch(fmt.Sprintf("resourceVersion=%d", first), api.Representation{})
		defer w.stop()
		expect(t, w.lines(t), "ADDED default/b@102")

		future := b.watch("resourceVersion=104", api.Representation{})
		defer future.stop()
		for _, key := range []string{"default/c", "default/d", "default/e"} {
			b.pod(key)
		}
		expect(t, future.lines(t), "ADDED default/e@105")

		now := b.watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", api.Representation{})
		defer now.stop()
		b.pod("default/f")
		expect(t, now.lines(t), "ADDED default/f@106")
	})
}

func TestWatchSelectorTransitions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a", "app=web")
		b.pod("default/b", "app=db")
		w := b.watch("resourceVersion=102&labelSelector="+url.QueryEscape("app=web"), api.Representation{})
		defer w.stop()
		b.update("default/b", "app=web")
		b.update("default/b", "app=web", "x=y")
		b.update("default/b", "app=db")
		b.update("default/a", "app=db")
		expect(t, w.lines(t), "ADDED default/b@103", "MODIFIED default/b@104", "DELETED default/b@105", "DELETED default/a@106")
	})
}

func TestWatchSendsLeavingObjectAsLastSeen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a", "app=web")
		for _, rep := range []api.Representation{{}, {Transform: api.PartialMetadata}} {
			client := &watchClient{}
			w := b.watchWith("resourceVersion=101&labelSelector=app%3Dweb", rep, client)
			if rep.Transform == api.NoTransform {
				b.update("default/a", "app=db")
			}
			synctest.Wait()
			if line := string(client.data); !strings.Contains(line, `"app":"web"`) || !strings.Contains(line, `"resourceVersion":"102"`) {
				t.Errorf("%v: %s", rep, line)
			}
			w.stop()
		}
	})
}

func TestWatchBookmarksAndDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a")
		w := b.watch("resourceVersion=101&allowWatchBookmarks=true&timeoutSeconds=70", api.Representation{})
		silent := b.watch("resourceVersion=101&timeoutSeconds=70", api.Representation{})
		time.Sleep(59 * time.Second)
		expect(t, w.lines(t))
		time.Sleep(2 * time.Second)
		expect(t, w.lines(t), "BOOKMARK @101")
		time.Sleep(8 * time.Second) // two seconds before the end
		expect(t, w.lines(t), "BOOKMARK @101")
		time.Sleep(2 * time.Second)
		expect(t, w.lines(t), "$")
		expect(t, silent.lines(t), "$")
		w.stop()
		silent.stop()
		if !slices.Equal(w.ended, []reason.WatchEnd{reason.WatchTimeout}) {
			t.Errorf("ended: %v", w.ended)
		}
	})
}

func TestWatchExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{HistoryEvents: 10})
		for i := range 30 {
			b.pod(fmt.Sprintf("default/p%d", i))
		}
		w := b.watch("resourceVersion=101", api.Representation{})
		expect(t, w.lines(t), "ERROR 410 Expired", "$")
		w.stop()
		if !slices.Equal(w.ended, []reason.WatchEnd{reason.WatchExpired}) {
			t.Errorf("ended: %v", w.ended)
		}
	})
}

// TestWatchFromVersionOfOtherResource checks that a version of another resource that an idle
// resource has not seen neither fails a watch nor delays it. Versions that nobody has are
// forwarded.
func TestWatchFromVersionOfOtherResource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a")
		rv := b.source.Bump(7)
		began := time.Now()
		w := b.watch(initial+fmt.Sprintf("&resourceVersion=%d", rv), api.Representation{})
		expect(t, w.lines(t), "ADDED default/a@101", fmt.Sprintf("BOOKMARK end@%d", rv))
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("after %s", took)
		}
		b.pod("default/b")
		expect(t, w.lines(t), fmt.Sprintf("ADDED default/b@%d", rv+1))
		w.stop()
		opts, err := api.ParseListOptions("watch=true&" + initial + "&resourceVersion=100000")
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, _, err := b.watches.Watch(t.Context(), b.c, &watch.Request{Options: opts}); !errors.Is(err, read.ErrForward) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("a future version: %v after %s", err, time.Since(began))
		}
	})
}

func TestSlowWatcherDelaysNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{HistoryEvents: 64})
		gate := make(chan struct{})
		var slow []*openWatch
		for range 100 {
			slow = append(slow, b.watchWith("resourceVersion=100", api.Representation{}, &watchClient{blocked: gate}))
		}
		fast := b.watch("resourceVersion=100", api.Representation{})
		b.pod("default/a")
		time.Sleep(100 * time.Millisecond) // the writers notice that they are blocked
		expect(t, fast.lines(t), "ADDED default/a@101")
		for i := range 200 { // more than the history holds
			b.pod(fmt.Sprintf("default/p%d", i))
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(fast.lines(t)); n != 200 {
			t.Errorf("the fast watcher got %d events", n)
		}
		close(gate)
		time.Sleep(100 * time.Millisecond) // with so many, the second write waits
		for _, w := range slow {
			lines := w.lines(t)
			if last := lines[len(lines)-2:]; !slices.Equal(last, []string{"ERROR 410 Expired", "$"}) {
				t.Fatalf("slow watcher: %v", last)
			}
			w.stop()
		}
		fast.stop()
	})
}

func TestWatchEndsWhenTheClientIsGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		w := b.watchWith("resourceVersion=100", api.Representation{}, &watchClient{fail: errors.New("connection reset")})
		b.pod("default/a")
		synctest.Wait()
		if !w.closed {
			t.Error("not closed after a failed write")
		}
		w.stop()
		if n := b.watches.Open(); n != 0 {
			t.Errorf("%d watches open", n)
		}
		if n := b.c.Mux().Stats().Watchers; n != 0 {
			t.Errorf("%d watchers left", n)
		}
	})
}

func TestWatchStoppedBeforeStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		opts, _ := api.ParseListOptions("watch=true&resourceVersion=100")
		resp, _, err := b.watches.Watch(t.Context(), b.c, &watch.Request{Options: opts})
		if err != nil {
			t.Fatal(err)
		}
		resp.Stream.Stop()
		if n := b.c.Mux().Stats().Watchers; n != 0 {
			t.Errorf("%d watchers left", n)
		}
	})
}

func TestRevokedWatchGetsNothingMore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		w := b.watch("resourceVersion=100&allowWatchBookmarks=true", api.Representation{})
		b.pod("default/a")
		expect(t, w.lines(t), "ADDED default/a@101")
		w.end(reason.PermissionRevoked)
		b.pod("default/b")
		expect(t, w.lines(t), "$")
		w.stop()
	})
}

func TestDrainSpreadsAndBookmarks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a")
		var open []*openWatch
		for range 10 {
			open = append(open, b.watch("resourceVersion=101&allowWatchBookmarks=true", api.Representation{}))
		}
		synctest.Wait()
		go b.watches.Drain(context.Background(), 10*time.Second)
		closedAfter := func() (n int) {
			synctest.Wait()
			for _, w := range open {
				w.mu.Lock()
				if w.closed {
					n++
				}
				w.mu.Unlock()
			}
			return n
		}
		if n := closedAfter(); n != 1 {
			t.Errorf("%d closed at once", n)
		}
		time.Sleep(5 * time.Second)
		if n := closedAfter(); n < 5 || n > 7 {
			t.Errorf("%d closed at half time", n)
		}
		time.Sleep(6 * time.Second)
		late := b.watch("resourceVersion=101", api.Representation{})
		expect(t, late.lines(t), "$")
		late.stop()
		for _, w := range open {
			expect(t, w.lines(t), "BOOKMARK @101", "$")
			w.stop()
		}
	})
}

func TestWatchPartialMetadata(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a", "app=web")
		client := &watchClient{}
		w := b.watchWith("resourceVersion=0", api.Representation{Transform: api.PartialMetadata}, client)
		defer w.stop()
		synctest.Wait()
		line := string(client.data)
		if !strings.HasPrefix(line, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{`) ||
			strings.Contains(line, "spec") || !strings.Contains(line, `"app":"web"`) {
			t.Errorf("event: %s", line)
		}
	})
}

func TestWatchSurvivesUpstreamDisconnect(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a")
		w := b.watch("resourceVersion=101", api.Representation{})
		defer w.stop()
		b.source.SetDown(true)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		b.source.Delete(cachetest.Pods, "default/a")
		b.source.Compact() // the reflector must relist, and find the deletion
		time.Sleep(time.Second)
		b.source.SetDown(false)
		time.Sleep(time.Minute)
		lines := w.lines(t)
		slices.Sort(lines)
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "ADDED default/b@102") || !strings.HasPrefix(lines[1], "DELETED default/a@") {
			t.Errorf("after the break: %v", lines)
		}
	})
}
