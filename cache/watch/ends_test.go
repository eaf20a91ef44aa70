package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// garbageSource sends invalid objects, or loses events, once the test requests it.
type garbageSource struct {
	cachetest.VersionLister
	on, loses atomic.Bool
}

func (s *garbageSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return s.VersionLister.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if s.loses.Load() {
			return nil
		}
		if s.on.Load() {
			ev.Object = []byte("garbage")
		}
		return handle(ev)
	})
}

// watchEndCase is a watch that ends.
type watchEndCase struct {
	why   reason.WatchEnd
	query string
	rep   api.Representation
	end   func(b *watchBench, w *openWatch)
	want  string // the last thing that the client receives
}

const fromNow = "resourceVersion=100&timeoutSeconds=600"

var watchEndCases = []watchEndCase{
	{why: reason.WatchTimeout, query: "resourceVersion=100&timeoutSeconds=5", want: "$",
		end: func(*watchBench, *openWatch) { time.Sleep(6 * time.Second) }},
	{why: reason.WatchTimeout, query: "timeoutSeconds=-1", want: "$", end: func(*watchBench, *openWatch) {}},
	{why: reason.WatchTimeout, query: "resourceVersion=50&timeoutSeconds=-1", want: "$", end: func(*watchBench, *openWatch) {}},
	{why: reason.WatchTimeout, query: "timeoutSeconds=9223372037", want: "$", end: func(*watchBench, *openWatch) {}}, // overflows in nanoseconds
	{why: reason.WatchClient, query: fromNow, end: func(*watchBench, *openWatch) {}},
	{why: reason.WatchClient, query: fromNow, want: "$", end: func(b *watchBench, w *openWatch) {
		w.fail = errors.New("broken pipe")
		b.pod("default/a")
	}},
	{why: reason.WatchExpired, query: "resourceVersion=50", want: "ERROR 410 Expired $", end: func(*watchBench, *openWatch) {}},
	{why: reason.WatchSlow, query: fromNow, want: "ERROR 410 Expired $", end: func(b *watchBench, w *openWatch) {
		w.blocked = make(chan struct{})
		for i := range 500 {
			b.pod(fmt.Sprintf("default/p%d", i))
		}
		close(w.blocked)
	}},
	{why: reason.WatchRewound, query: fromNow, want: "ERROR 410 Expired $", end: func(b *watchBench, _ *openWatch) {
		backup := b.source.Backup()
		b.pod("default/a")
		b.source.Rewind(backup)
		time.Sleep(time.Minute)
	}},
	{why: reason.WatchDiffers, query: fromNow, want: "ERROR 410 Expired $", end: func(b *watchBench, _ *openWatch) {
		b.garbage.loses.Store(true)
		b.pod("default/a")
		synctest.Wait()
		b.garbage.loses.Store(false)
		b.pod("default/b")
		b.manager.Check(b.t.Context(), func(schema.GroupVersionResource) bool { return true })
	}},
	{why: reason.WatchRedefined, query: fromNow, want: "$", end: func(b *watchBench, _ *openWatch) {
		b.manager.Drop(cachetest.Pods, errors.New("the definition changed"))
	}},
	{why: reason.WatchFeedLost, query: fromNow, want: "$", end: func(b *watchBench, _ *openWatch) {
		b.garbage.on.Store(true)
		b.pod("default/a")
		time.Sleep(time.Minute)
	}},
	{why: reason.WatchStopped, query: fromNow, want: "$", end: func(b *watchBench, _ *openWatch) { b.manager.Close() }},
	{why: reason.PermissionRevoked, query: fromNow, want: "$", end: func(_ *watchBench, w *openWatch) { w.end(reason.PermissionRevoked) }},
	{why: reason.NamespacesChanged, query: fromNow + "&allowWatchBookmarks=true", want: "ERROR 410 Expired $", end: func(b *watchBench, w *openWatch) {
		w.blocked = make(chan struct{})
		b.pod("default/a") // is being written, or not at all
		w.end(reason.NamespacesChanged)
		close(w.blocked)
	}},
	{why: reason.CredentialInvalid, query: fromNow, want: "$", end: func(_ *watchBench, w *openWatch) { w.end(reason.CredentialInvalid) }},
	{why: reason.Unconfirmed, query: fromNow, want: "$", end: func(_ *watchBench, w *openWatch) { w.end(reason.Unconfirmed) }},
	{why: reason.WatchBlocked, query: fromNow + "&allowWatchBookmarks=true", want: "BOOKMARK @100 $",
		end: func(_ *watchBench, w *openWatch) { w.end(reason.WatchBlocked) }},
	{why: reason.PolicyChanged, query: fromNow + "&allowWatchBookmarks=true", want: "$",
		end: func(_ *watchBench, w *openWatch) { w.end(reason.PolicyChanged) }},
	{why: reason.WatchOperator, query: fromNow + "&allowWatchBookmarks=true", want: "BOOKMARK @100 $", end: func(b *watchBench, _ *openWatch) {
		if n := b.watches.End(reason.WatchOperator, func(*watch.OpenWatch) bool { return true }); n != 1 {
			b.t.Errorf("%d watches ended", n)
		}
	}},
	{why: reason.WatchDraining, query: fromNow + "&allowWatchBookmarks=true", want: "BOOKMARK @100 $",
		end: func(b *watchBench, _ *openWatch) { b.watches.Drain(b.t.Context(), 0) }},
	{why: reason.WatchFailed, query: fromNow, rep: tables, want: "ERROR 500 InternalError $", end: func(b *watchBench, _ *openWatch) {
		b.printer.Broken.Store(true)
		b.pod("default/a")
	}},
}

// TestWatchEnds opens a watch for each reason to end, and checks what its client receives last and
// that the end is counted.
func TestWatchEnds(t *testing.T) {
	covered := make(map[reason.WatchEnd]bool)
	for _, c := range watchEndCases {
		covered[c.why] = true
		t.Run(c.why.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { testWatchEnd(t, &c) })
		})
	}
	for _, why := range reason.WatchEnds() {
		if !covered[why] {
			t.Errorf("no watch ends for %q", why)
		}
	}
}

func testWatchEnd(t *testing.T, c *watchEndCase) {
	res, printer := cachetest.PodResource(), &cachetest.Printer{Printer: table.NewDefaultPrinter()}
	res.Printer = printer
	b := &watchBench{t: t, source: cachetest.New(res), printer: printer}
	b.garbage = &garbageSource{VersionLister: cachetest.VersionLister{Source: b.source}}
	b.start(res, b.garbage, cache.Limits{HistoryEvents: 10})
	b.source.Compact() // the history cannot be extended
	w := b.watch(c.query, c.rep)
	synctest.Wait()
	c.end(b, w)
	lines := w.lines(t)
	if c.want != "" && !strings.HasSuffix(strings.Join(lines, " "), c.want) {
		t.Errorf("the client got %v, want %s", lines, c.want)
	}
	w.stop()
	if !slices.Equal(w.ended, []reason.WatchEnd{c.why}) {
		t.Errorf("ended: %v", w.ended)
	}
	expected := "# HELP kubeweir_watches_ended_total Client watches served from the cache that ended, by reason (docs/reasons.md).\n# TYPE kubeweir_watches_ended_total counter\n"
	for _, why := range reason.WatchEnds() {
		n := 0
		if why == c.why {
			n = 1
		}
		expected += fmt.Sprintf("kubeweir_watches_ended_total{reason=%q} %d\n", why.String(), n)
	}
	if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(expected), "kubeweir_watches_ended_total"); err != nil {
		t.Error(err)
	}
}
