package cache_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/reason"
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

// TestWatchOfWhatCannotBePrinted checks that an event that cannot be printed is an error in every
// watch of Tables, and skipped in none.
func TestWatchOfWhatCannotBePrinted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		printer := &countingPrinter{Printer: table.NewDefaultPrinter()}
		b := newPrintingWatchBench(t, cache.Limits{}, printer)
		var all []*openWatch
		for range 3 {
			all = append(all, b.watch("resourceVersion=100", tables))
		}
		b.pod("default/a") // the columns were sent
		printer.broken.Store(true)
		b.pod("default/b")
		printer.broken.Store(false)
		b.pod("default/c")
		for i, w := range all {
			if got, want := w.tableLines(t), "ADDED@101 ERROR@ $"; got != want {
				t.Errorf("watch %d got %s, want %s", i, got, want)
			}
			w.stop()
		}
	})
}

// TestPanicsOfAWatch checks that a panic while a watch is served ends that watch only.
func TestPanicsOfAWatch(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	bubble.Test(t, func(t *testing.T) {
		printer := &countingPrinter{Printer: table.NewDefaultPrinter()}
		b := newPrintingWatchBench(t, cache.Limits{}, printer)
		fatal := "fatal"
		printer.fatal.Store(&fatal)
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
			t.Errorf("a watch that it does not concern got %s, want %s", got, want)
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

// TestPanicsWithinAWrite checks that nothing follows an interrupted write, not even an error,
// because it is unknown what the client has received.
func TestPanicsWithinAWrite(t *testing.T) {
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

// TestPanicsWithinAFlush checks that frames queued for other connections are sent, and that the
// goroutine continues.
func TestPanicsWithinAFlush(t *testing.T) {
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

// TestPanicsOfAFeed checks that a collection whose reflector panics stops, that its watches end,
// and that the next one does not start at once, because it would panic as well.
func TestPanicsOfAFeed(t *testing.T) {
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
			t.Error("the watch goes on")
		}
		<-c.Closed()
		calls := len(source.Calls())
		for range 10 {
			if _, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON); err == nil {
				t.Error("a collection whose feed panicked")
			}
		}
		if n := len(source.Calls()); n > 0 {
			t.Errorf("%d calls after the panic, %d before", n, calls)
		}
		source.fatal = false
		time.Sleep(90 * time.Second)
		if v := cachetest.PodCollection(t, m).Snapshot(); v.Get("a/1") == nil {
			t.Error("the collection did not begin anew")
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

// panickingContext panics when it is asked whether the client is still there, as the compression of
// initial events does.
type panickingContext struct{ context.Context }

func (panickingContext) Err() error { panic("in a context") }

// TestPanicsOfACompression checks that the watch continues without compression, so that no orphaned
// watcher remains.
func TestPanicsOfACompression(t *testing.T) {
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

// TestCompressionForNobody checks that the initial events of a client that has left are not
// selected.
func TestCompressionForNobody(t *testing.T) {
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
