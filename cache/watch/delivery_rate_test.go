package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestWatchersReceiveEventsSeparatelyUnlessMany checks that a few watchers receive every event
// separately, however fast events arrive, that many watchers receive several at a time, but only
// then, and that none is lost or late.
func TestWatchersReceiveEventsSeparatelyUnlessMany(t *testing.T) {
	for _, test := range []struct {
		watchers    int
		every       time.Duration
		least, most int // writes per watcher
	}{
		{watchers: 1, every: time.Millisecond, least: 1000, most: 1000},
		{watchers: 20, every: time.Millisecond, least: 1000, most: 1000},
		{watchers: 1000, every: 25 * time.Millisecond, least: 36, most: 40},
		{watchers: 1000, every: 5 * time.Millisecond, least: 25, most: 40},
	} {
		t.Run(fmt.Sprintf("%d watchers, every %s", test.watchers, test.every), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newWatchBench(t, cache.Limits{})
				var all []*openWatch
				for range test.watchers {
					all = append(all, b.watch("resourceVersion=100", api.Representation{}))
				}
				events := int(time.Second / test.every)
				for i := range events {
					b.pod(fmt.Sprintf("default/p%d", i))
					time.Sleep(test.every)
				}
				time.Sleep(40 * time.Millisecond)
				for _, w := range all[:min(10, len(all))] {
					if n := len(w.lines(t)); n != events {
						t.Errorf("%d events of %d", n, events)
					}
					if w.writes < test.least || w.writes > test.most {
						t.Errorf("%d writes, want %d to %d", w.writes, test.least, test.most)
					}
					w.stop()
				}
				for _, w := range all[min(10, len(all)):] {
					w.stop()
				}
			})
		})
	}
}
