package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// tableLines returns the events of a Table watch since the last call as types and versions, with
// "$" for the end.
func (c *watchClient) tableLines(t *testing.T) string {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(string(c.data)), "\n") {
		if line == "" {
			continue
		}
		kind, rest, _ := strings.Cut(strings.TrimPrefix(line, `{"type":"`), `"`)
		_, rest, _ = strings.Cut(rest, `"resourceVersion":"`)
		rv, _, _ := strings.Cut(rest, `"`)
		if kind == "ERROR" {
			rv = ""
		}
		out = append(out, kind+"@"+rv)
	}
	c.data = nil
	if c.closed {
		out = append(out, "$")
	}
	return strings.Join(out, " ")
}

var tables = api.Representation{Transform: api.Table, IncludeObject: api.IncludeNone}

// TestUnprintableEventFailsWatchesOfTables checks that an event that cannot be printed is an error
// in every watch of Tables, and skipped in none.
func TestUnprintableEventFailsWatchesOfTables(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		printer := &cachetest.Printer{Printer: table.NewDefaultPrinter()}
		b := newPrintingWatchBench(t, cache.Limits{}, printer)
		var all []*openWatch
		for range 3 {
			all = append(all, b.watch("resourceVersion=100", tables))
		}
		b.pod("default/a") // the columns were sent
		printer.Broken.Store(true)
		b.pod("default/b")
		printer.Broken.Store(false)
		b.pod("default/c")
		for i, w := range all {
			if got, want := w.tableLines(t), "ADDED@101 ERROR@ $"; got != want {
				t.Errorf("watch %d got %s, want %s", i, got, want)
			}
			w.stop()
		}
	})
}

// panickingPrinter panics for objects whose name has "fatal" in it.
type panickingPrinter struct{ table.Printer }

func (p panickingPrinter) Row(raw []byte) (*table.Row, error) {
	if bytes.Contains(raw, []byte("fatal")) {
		panic("cannot print")
	}
	return p.Printer.Row(raw)
}

// TestWatchPanicEndsThatWatchOnly checks that a panic while a watch is served ends that watch only.
func TestWatchPanicEndsThatWatchOnly(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble.Test(t, func(t *testing.T) {
		b := newPrintingWatchBench(t, cache.Limits{}, panickingPrinter{table.NewDefaultPrinter()})
		watches := []*openWatch{b.watch("resourceVersion=100", tables), b.watch("resourceVersion=100", tables)}
		plain := b.watch("resourceVersion=100", api.Representation{})
		elsewhere := b.watch("resourceVersion=100&labelSelector=app%3Dweb", tables)
		b.pod("default/a", "app=web")
		b.pod("default/fatal")
		b.pod("default/c", "app=web")
		for i, w := range watches {
			if got, want := w.tableLines(t), "ADDED@101 ERROR@ $"; got != want {
				t.Errorf("watch %d got %s, want %s", i, got, want)
			}
			w.stop()
			if fmt.Sprint(w.ended) != fmt.Sprint([]reason.WatchEnd{reason.WatchFailed}) {
				t.Errorf("watch %d ended: %v", i, w.ended)
			}
		}
		expect(t, plain.lines(t), "ADDED default/a@101", "ADDED default/fatal@102", "ADDED default/c@103")
		if got, want := elsewhere.tableLines(t), "ADDED@101 ADDED@103"; got != want {
			t.Errorf("an unaffected watch got %s, want %s", got, want)
		}
		initials := b.watch(initial, tables)
		if got := initials.tableLines(t); !strings.HasSuffix(got, "ERROR@ $") {
			t.Errorf("initial events: %s", got)
		}
		for _, w := range []*openWatch{plain, elsewhere, initials} {
			w.stop()
		}
		families, err := b.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "kubeweir_panics_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				if n, place := m.GetCounter().GetValue(), m.GetLabel()[0].GetValue(); (n > 0) != (place == "watch") {
					t.Errorf("%v panics of place %s", n, place)
				}
			}
		}
	})
}

// panickingClient panics in the middle of a write.
type panickingClient struct {
	*watchClient
	aborted bool
}

func (c *panickingClient) WriteFrames([][]byte) error { panic("in the transport") }
func (c *panickingClient) Abort()                     { c.aborted = true }

// TestPanicDuringWriteSendsNothingMore checks that nothing follows an interrupted write, not even
// an error, because it is unknown what the client has received.
func TestPanicDuringWriteSendsNothingMore(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		opts, err := api.ParseListOptions("watch=true&resourceVersion=100")
		if err != nil {
			t.Fatal(err)
		}
		resp, _, err := b.watches.Watch(t.Context(), b.c, &watch.Request{Options: opts})
		if err != nil {
			t.Fatal(err)
		}
		client := &panickingClient{watchClient: &watchClient{}}
		resp.Stream.Start(client)
		b.pod("default/a")
		b.pod("default/b")
		synctest.Wait()
		if !client.aborted || client.closed {
			t.Errorf("aborted %v, closed %v", client.aborted, client.closed)
		}
		resp.Stream.Stop()
	})
}

// panickingFlusher queues frames and panics when they are flushed.
type panickingFlusher struct{ panickingClient }

func (c *panickingFlusher) QueueFrames([][]byte) bool { return true }
func (c *panickingFlusher) Flush()                    { panic("in the transport") }

// TestPanicDuringFlushDelaysNobody checks that frames queued for other connections are sent, and
// that the goroutine continues.
func TestPanicDuringFlushDelaysNobody(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		opts, err := api.ParseListOptions("watch=true&resourceVersion=100")
		if err != nil {
			t.Fatal(err)
		}
		resp, _, err := b.watches.Watch(t.Context(), b.c, &watch.Request{Options: opts})
		if err != nil {
			t.Fatal(err)
		}
		client := &panickingFlusher{panickingClient{watchClient: &watchClient{}}}
		resp.Stream.Start(client)
		plain := b.watch("resourceVersion=100", api.Representation{})
		b.pod("default/a")
		synctest.Wait()
		if !client.aborted || client.closed {
			t.Errorf("aborted %v, closed %v", client.aborted, client.closed)
		}
		resp.Stream.Stop()
		b.pod("default/b")
		expect(t, plain.lines(t), "ADDED default/a@101", "ADDED default/b@102")
		plain.stop()
	})
}

// panickingContext panics when the compression of initial events checks whether the client is still
// connected.
type panickingContext struct{ context.Context }

func (panickingContext) Err() error { panic("in a context") }

// TestCompressionPanicContinuesUncompressed checks that the watch continues without compression, so
// that no orphaned watcher remains.
func TestCompressionPanicContinuesUncompressed(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.fillBig(90)
		opts, err := api.ParseListOptions("watch=true&labelSelector=app&" + initial)
		if err != nil {
			t.Fatal(err)
		}
		filter, err := object.NewFilter(b.c.Resource().Schema, "", "", opts.LabelSelector, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, _, err := b.watches.Watch(panickingContext{t.Context()}, b.c, &watch.Request{
			Filter: filter, Options: opts, Compression: api.Gzip, MostRecent: b.c.RV(),
		})
		if err != nil {
			t.Fatal(err)
		}
		client := &watchClient{}
		resp.Stream.Start(client)
		if got := client.lines(t); resp.Header.Has("Content-Encoding") || len(got) != 91 {
			t.Errorf("%v, %d events", resp.Header, len(got))
		}
		resp.Stream.Stop()
	})
}

// TestInitialEventsOfDepartedClientAreNotSelected checks that the initial events of a client that
// has left are not selected.
func TestInitialEventsOfDepartedClientAreNotSelected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.fillBig(90)
		opts, err := api.ParseListOptions("watch=true&labelSelector=app&resourceVersion=0")
		if err != nil {
			t.Fatal(err)
		}
		filter, err := object.NewFilter(b.c.Resource().Schema, "", "", opts.LabelSelector, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		resp, _, err := b.watches.Watch(ctx, b.c, &watch.Request{Filter: filter, Options: opts, Compression: api.Gzip})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Has("Content-Encoding") {
			t.Error(resp.Header)
		}
		resp.Stream.Stop()
	})
}
