package watch_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// coalesced opens coalescing watches.
func (b *watchBench) coalesced(query string, rep api.Representation, pace watch.Pace) *openWatch {
	b.t.Helper()
	b.pace = pace
	defer func() { b.pace = watch.Pace{} }()
	return b.watch(query, rep)
}

const half = 500 * time.Millisecond

// TestWatchCoalesces checks that an event after an idle time is sent at once, that later ones
// within the interval are sent together, the last state of each object, and that all additions and
// deletions are sent.
func TestWatchCoalesces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a") // 101
		w := b.coalesced(initial, api.Representation{}, watch.Pace{Coalesce: half})
		defer w.stop()
		expect(t, w.lines(t), "ADDED default/a@101", "BOOKMARK end@101")
		b.update("default/a")
		expect(t, w.lines(t), "MODIFIED default/a@102")
		b.update("default/a") // 103
		b.update("default/a") // 104
		b.pod("default/b")    // 105
		b.update("default/b") // 106
		b.update("default/b") // 107
		b.pod("default/c")    // 108
		b.source.Delete(cachetest.Pods, "default/c")
		b.pod("default/c") // 110
		time.Sleep(half - time.Millisecond)
		expect(t, w.lines(t))
		time.Sleep(time.Millisecond)
		expect(t, w.lines(t), "MODIFIED default/a@104", "ADDED default/b@105", "MODIFIED default/b@107", "ADDED default/c@108", "DELETED default/c@109", "ADDED default/c@110")
		time.Sleep(half)
		b.update("default/a")
		expect(t, w.lines(t), "MODIFIED default/a@111")
	})
}

// TestCoalescingWatchSendsLeavingAndReturning checks that an object that leaves the selection and
// returns within the interval is sent as both.
func TestCoalescingWatchSendsLeavingAndReturning(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a", "app=x") // 101
		w := b.coalesced(initial+"&labelSelector=app%3Dx", api.Representation{}, watch.Pace{Coalesce: half})
		defer w.stop()
		expect(t, w.lines(t), "ADDED default/a@101", "BOOKMARK end@101")
		b.update("default/a", "app=x")
		expect(t, w.lines(t), "MODIFIED default/a@102")
		b.update("default/a", "app=x")
		b.update("default/a", "app=y")
		b.update("default/a", "app=y")
		b.update("default/a", "app=x")
		b.update("default/a", "app=x", "more=1")
		b.update("default/a", "app=x", "more=2")
		time.Sleep(half)
		expect(t, w.lines(t), "DELETED default/a@104", "ADDED default/a@106", "MODIFIED default/a@108")
	})
}

// TestCoalescingWatchEnds checks that bookmarks and ends by timeout, drain and revocation do not
// wait, and that pending events are sent before all but the last.
func TestCoalescingWatchEnds(t *testing.T) {
	long := watch.Pace{Coalesce: 30 * time.Second}
	open := func(b *watchBench, query string) *openWatch {
		b.pod("default/a") // 101
		w := b.coalesced(initial+query, api.Representation{}, long)
		b.update("default/a")
		expect(t, w.lines(t), "ADDED default/a@101", "BOOKMARK end@101", "MODIFIED default/a@102")
		b.update("default/a")
		b.update("default/a")
		expect(t, w.lines(t))
		return w
	}
	for name, test := range map[string]func(t *testing.T, b *watchBench){
		"bookmark": func(t *testing.T, b *watchBench) {
			w := open(b, "")
			time.Sleep(29 * time.Second)
			expect(t, w.lines(t))
			time.Sleep(time.Second)
			expect(t, w.lines(t), "MODIFIED default/a@104")
			time.Sleep(25 * time.Second)
			b.update("default/a")
			expect(t, w.lines(t))
			time.Sleep(5 * time.Second)
			expect(t, w.lines(t), "MODIFIED default/a@105", "BOOKMARK @105")
			w.stop()
		},
		"timeoutSeconds": func(t *testing.T, b *watchBench) {
			w := open(b, "&timeoutSeconds=10")
			time.Sleep(8 * time.Second)
			expect(t, w.lines(t), "MODIFIED default/a@104", "BOOKMARK @104")
			b.update("default/a")
			time.Sleep(2 * time.Second)
			expect(t, w.lines(t), "MODIFIED default/a@105", "$")
			w.stop()
		},
		"drain": func(t *testing.T, b *watchBench) {
			w := open(b, "")
			b.watches.Drain(t.Context(), 0)
			expect(t, w.lines(t), "MODIFIED default/a@104", "BOOKMARK @104", "$")
			w.stop()
		},
		"revocation": func(t *testing.T, b *watchBench) {
			w := open(b, "")
			w.end(reason.PermissionRevoked)
			expect(t, w.lines(t), "$")
			w.stop()
		},
		"the end of the collection": func(t *testing.T, b *watchBench) {
			w := open(b, "")
			b.manager.Close()
			expect(t, w.lines(t), "MODIFIED default/a@104", "$")
			w.stop()
		},
		"its client": func(_ *testing.T, b *watchBench) { open(b, "").stop() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { test(t, newWatchBench(t, cache.Limits{})) })
		})
	}
}

// TestCoalescingWatchFlushesEarly checks that pending events are flushed early if there is no room
// for more.
func TestCoalescingWatchFlushesEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{HistoryEvents: 400})
		w := b.coalesced("resourceVersion=100", api.Representation{}, watch.Pace{Coalesce: 30 * time.Second})
		defer w.stop()
		for i := range 1000 {
			b.pod(fmt.Sprintf("default/p%d", i))
		}
		if n := len(w.lines(t)); n < 700 || n == 1000 {
			t.Errorf("%d events", n)
		}
		time.Sleep(30 * time.Second)
		if n := len(w.lines(t)); n == 0 {
			t.Error("the rest did not arrive")
		}
	})
}

// TestWatchBytesPerSecond checks that a watch above its rate limit waits longer, and is counted
// meanwhile, and that unlimited or slower watches do not.
func TestWatchBytesPerSecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		for i := range 20 {
			b.pod(fmt.Sprintf("default/p%d", i))
		}
		const rate = 4 << 10
		slow := b.coalesced("resourceVersion="+fmt.Sprint(b.c.RV()), api.Representation{}, watch.Pace{Coalesce: half, BytesPerSecond: rate})
		plain := b.watch("resourceVersion="+fmt.Sprint(b.c.RV()), api.Representation{})
		got, all := 0, 0
		begun := time.Now()
		for time.Since(begun) < 4*time.Minute {
			for i := range 20 {
				b.update(fmt.Sprintf("default/p%d", i))
			}
			time.Sleep(half)
			got += len(slow.take())
			all += len(plain.take())
		}
		if second := got / 240; second > rate || second < rate/2 || all < 2*got {
			t.Errorf("%d bytes a second of %d, at most %d", second, all/240, rate)
		}
		slow.mu.Lock()
		writes := slow.writes
		slow.mu.Unlock()
		if writes > 300 {
			t.Errorf("%d writes", writes)
		}
		counts := func(coalescing, extended int) {
			t.Helper()
			want := fmt.Sprintf("# TYPE kubeweir_watches_coalescing gauge\nkubeweir_watches_coalescing %d\n# TYPE kubeweir_watches_widened gauge\nkubeweir_watches_widened %d\n", coalescing, extended)
			families, err := b.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, f := range families {
				if name := f.GetName(); name == "kubeweir_watches_coalescing" || name == "kubeweir_watches_widened" {
					fmt.Fprintf(&text, "# TYPE %s gauge\n%s %v\n", name, name, f.GetMetric()[0].GetGauge().GetValue())
				}
			}
			if text.String() != want {
				t.Errorf("got\n%swant\n%s", text.String(), want)
			}
		}
		counts(1, 1)
		time.Sleep(3 * time.Minute) // long enough for a bookmark, or the end
		b.update("default/p1")
		time.Sleep(time.Minute)
		counts(1, 0)
		slow.stop()
		plain.stop()
		counts(0, 0)
	})
}

// take returns what arrived since the last call.
func (c *watchClient) take() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(c.data)
	c.data = nil
	return text
}

// TestCoalescingForms checks that a coalescing watch in every form agrees with a list, at each
// bookmark and at the end.
func TestCoalescingForms(t *testing.T) {
	for name, rep := range map[string]api.Representation{
		"JSON": {}, "Table": {Transform: api.Table}, "Table of rows alone": {Transform: api.Table, IncludeObject: api.IncludeNone}, "metadata": {Transform: api.PartialMetadata}, "CBOR": {Encoding: api.CBOR},
		"messages": {}, "gzip": {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { coalesceForm(t, name, rep) })
		})
	}
}

// coalesceForm compares the events of a coalescing watch with those of another one: they must be
// among them, and end with the same event per object.
func coalesceForm(t *testing.T, name string, rep api.Representation) {
	b := newWatchBench(t, cache.Limits{})
	switch name {
	case "messages":
		b.message = func(dst []byte, size int) []byte { return fmt.Appendf(dst, "\n<%d>", size) }
	case "gzip":
		b.compression = api.Gzip
	}
	for i := range 1000 {
		b.pod(fmt.Sprintf("default/p%d", i))
	}
	every := b.watch(initial+"&timeoutSeconds=60", rep)
	coalesced := b.coalesced(initial+"&timeoutSeconds=60", rep, watch.Pace{Coalesce: half})
	random := rand.New(rand.NewPCG(1, 2))
	updates := soak.Cases(1000, 3000)
	for range updates {
		b.update(fmt.Sprintf("default/p%d", random.IntN(20)), fmt.Sprint("n=", random.IntN(1000)))
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Minute) // until both have ended
	text := func(w *openWatch) []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		data := w.data
		if name == "gzip" {
			r, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		mark := "\n"
		if rep.Encoding == api.CBOR {
			mark = "\xd9\xd9\xf7\xa2"
		}
		return strings.Split(string(data), mark)
	}
	all := map[string]bool{}
	allEvents, coalescedEvents := text(every), text(coalesced)
	for _, e := range allEvents {
		all[e] = true
	}
	for _, e := range coalescedEvents {
		if !all[e] && rep.Transform != api.Table { // ages change
			t.Errorf("an event that the other watch does not have: %.300q", e)
		}
	}
	coalescedUpdates, allUpdates := len(coalescedEvents)-1000, len(allEvents)-1000
	if name == "messages" { // each message has a line before it
		coalescedUpdates, allUpdates = coalescedUpdates/2-500, allUpdates/2-500
	}
	if coalescedUpdates > allUpdates/2 || coalescedUpdates < updates/5 { // half of 20 objects in each half second
		t.Errorf("%d events of %d", coalescedUpdates, allUpdates)
	}
	if rep.Encoding == api.JSON && name != "messages" && rep.IncludeObject != api.IncludeNone {
		if a, c := lastVersions(t, allEvents), lastVersions(t, coalescedEvents); !maps.Equal(a, c) || len(a) != 1000 {
			t.Errorf("%v, want %v", c, a)
		}
	}
	every.stop()
	coalesced.stop()
}

// lastVersions returns the versions of the objects after the given JSON events.
func lastVersions(t *testing.T, events []string) map[string]string {
	last := map[string]string{}
	for _, line := range events {
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
				Rows     []struct {
					Object struct {
						Metadata struct{ Name, ResourceVersion string }
					}
				}
			}
		}
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		m := e.Object.Metadata
		if len(e.Object.Rows) > 0 {
			m = e.Object.Rows[0].Object.Metadata
		}
		if e.Type != "BOOKMARK" {
			last[m.Name] = m.ResourceVersion
		}
	}
	return last
}
