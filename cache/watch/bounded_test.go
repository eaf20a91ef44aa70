package watch_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestRateLimitedWatchStaysBelowLimit checks that a rate-limited watch of constantly changing
// objects sends less than its limit in any ten seconds, that each object is sent again and again,
// rarely changing ones soon, and that bookmarks follow once everything up to their version was
// sent.
func TestRateLimitedWatchStaysBelowLimit(t *testing.T) {
	forms := map[string]api.Representation{"Table": {Transform: api.Table}}
	if soak.Enabled() { // TestRandomCoalescingWatches limits watches in every form
		forms["metadata"], forms["JSON"] = api.Representation{Transform: api.PartialMetadata}, api.Representation{}
	}
	for name, rep := range forms {
		t.Run(name, func(t *testing.T) { bubble.Test(t, func(t *testing.T) { watchBounded(t, rep) }) })
	}
}

func watchBounded(t *testing.T, rep api.Representation) {
	const pods, rate = 60, 4 << 10
	const portion = 8 << 10 // a few events are sent at once
	seconds := soak.Cases(100, 300)
	b := newWatchBench(t, cache.Limits{})
	for i := range pods {
		b.pod(fmt.Sprintf("default/p%d", i), "pad="+strings.Repeat("x", 60))
	}
	b.pod("default/rare")
	w := b.coalesced("resourceVersion="+fmt.Sprint(b.c.RV())+"&allowWatchBookmarks=true", rep, watch.Pace{Coalesce: half, BytesPerSecond: rate})
	defer w.stop()
	sizes := make([]int, 2*seconds) // per half second
	sent, written, waited, bookmarks := map[string]int{}, map[string]uint64{}, 0, 0
	rareAt, version := -1, uint64(0)
	for step := range sizes {
		for i := range pods {
			b.update(fmt.Sprintf("default/p%d", i), fmt.Sprint("n=", step), "pad="+strings.Repeat("x", 60))
		}
		if step%100 == 50 {
			b.update("default/rare")
			rareAt = step
		}
		time.Sleep(half)
		text := w.take()
		sizes[step] = len(text)
		for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
			kind, name, rv := eventOf(t, line)
			if kind != "" && rv < version {
				t.Fatalf("%s %s@%d after %d", kind, name, rv, version)
			}
			version = max(version, rv)
			switch {
			case kind == "BOOKMARK":
				bookmarks++
				if len(written) < pods {
					t.Errorf("a bookmark after %d objects", len(written))
				}
			case name != "":
				sent[name]++
				written[name] = rv
				if name == "rare" && rareAt >= 0 {
					waited, rareAt = max(waited, step-rareAt), -1
				}
			}
		}
	}
	most, all := 0, 0
	for i := range sizes {
		all += sizes[i]
		sum := 0
		for _, n := range sizes[i:min(i+20, len(sizes))] {
			sum += n
		}
		most = max(most, sum)
	}
	if most > 10*rate+portion || all < seconds*rate*3/4 || all > seconds*rate+portion {
		t.Errorf("%d bytes in ten seconds, %d in all, with a bound of %d a second", most, all, rate)
	}
	for name, n := range sent {
		if name != "rare" && n < 3 {
			t.Errorf("%s was sent %d times", name, n)
		}
	}
	if len(sent) != pods+1 || sent["rare"] != seconds/50 || waited > 120 || bookmarks < max(1, seconds/150) {
		t.Errorf("%d objects, the rare one %d times, after %d half seconds at most, %d bookmarks", len(sent), sent["rare"], waited, bookmarks)
	}
}

// TestRateLimitedWatchCatchesUpAtOnce checks that events missed before the watch began are sent at
// once and do not count against its limit.
func TestRateLimitedWatchCatchesUpAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		for i := range 300 {
			b.pod(fmt.Sprintf("default/p%d", i))
		}
		w := b.coalesced("resourceVersion=100", api.Representation{}, watch.Pace{Coalesce: half, BytesPerSecond: 1 << 10})
		defer w.stop()
		if n := len(w.lines(t)); n != 300 {
			t.Errorf("%d events", n)
		}
		b.update("default/p7")
		time.Sleep(time.Second)
		if got := w.lines(t); len(got) != 1 || !strings.HasPrefix(got[0], "MODIFIED default/p7@") {
			t.Errorf("later %v", got)
		}
	})
}

// TestRateLimitedWatchDebtIsBounded checks that events sent early for lack of room do not delay the
// watch for longer than one round, however often that happened.
func TestRateLimitedWatchDebtIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{HistoryEvents: 400})
		w := b.coalesced("resourceVersion=100&allowWatchBookmarks=true", api.Representation{}, watch.Pace{Coalesce: half, BytesPerSecond: 1 << 10})
		defer w.stop()
		for i := range 3000 {
			b.pod(fmt.Sprintf("default/p%d", i), "pad="+strings.Repeat("x", 60))
		}
		w.take()
		for i := range 40 {
			b.update(fmt.Sprintf("default/p%d", i))
		}
		begun := time.Now()
		for n := 0; n < 40 && time.Since(begun) < 20*time.Minute; time.Sleep(half) {
			n += strings.Count(w.take(), "MODIFIED")
		}
		if waited := time.Since(begun); waited > 2*watchmux.HoldFor {
			t.Errorf("events waited for %v", waited)
		}
	})
}

// eventOf parses an event in any form; there may be none.
func eventOf(t *testing.T, line string) (kind, name string, rv uint64) {
	t.Helper()
	if line == "" {
		return "", "", 0
	}
	type meta struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	var e struct {
		Type   string
		Object struct {
			meta
			Rows []struct{ Object meta }
		}
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	m := e.Object.meta
	if len(e.Object.Rows) > 0 {
		m = e.Object.Rows[0].Object
	}
	rv, _ = strconv.ParseUint(m.Metadata.ResourceVersion, 10, 64)
	return e.Type, m.Metadata.Name, rv
}
