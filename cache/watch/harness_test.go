package watch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// watchClient is the client of a watch; it collects what is written.
type watchClient struct {
	mu     sync.Mutex
	data   []byte
	closed bool
	// blocked makes writes wait until it is closed.
	blocked chan struct{}
	fail    error
	writes  int
}

func (c *watchClient) WriteFrames(frames [][]byte) error {
	if c.blocked != nil {
		<-c.blocked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	if c.closed {
		return errors.New("write after close")
	}
	for _, f := range frames {
		c.data = append(c.data, f...)
	}
	c.writes++
	return nil
}

func (c *watchClient) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *watchClient) Abort() { c.Close() }

// lines returns what arrived since the last call, one event per line in short form: "ADDED
// default/a@101", with "$" for a closed stream.
func (c *watchClient) lines(t *testing.T) []string {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for _, line := range bytes.Split(bytes.TrimSuffix(c.data, []byte("\n")), []byte("\n")) {
		if len(line) > 0 {
			lines = append(lines, shortEvent(t, line))
		}
	}
	c.data = nil
	if c.closed {
		lines = append(lines, "$")
	}
	return lines
}

func shortEvent(t *testing.T, line []byte) string {
	t.Helper()
	var e struct {
		Type   string
		Object struct {
			Code     int
			Reason   string
			Metadata struct {
				Namespace, Name, ResourceVersion string
				Annotations                      map[string]string
			}
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("event %q: %v", line, err)
	}
	m := e.Object.Metadata
	switch {
	case e.Type == "ERROR":
		return fmt.Sprintf("ERROR %d %s", e.Object.Code, e.Object.Reason)
	case e.Type == "BOOKMARK" && m.Annotations["k8s.io/initial-events-end"] == "true":
		return "BOOKMARK end@" + m.ResourceVersion
	case e.Type == "BOOKMARK":
		return "BOOKMARK @" + m.ResourceVersion
	}
	return fmt.Sprintf("%s %s/%s@%s", e.Type, m.Namespace, m.Name, m.ResourceVersion)
}

// watchBench is a collection of pods and what serves its watches.
type watchBench struct {
	t           *testing.T
	source      *cachetest.Source
	manager     *cache.Manager
	watches     *watch.Watches
	c           *cache.Collection
	metrics     *prometheus.Registry
	message     func(dst []byte, size int) []byte // see watch.Request
	pace        watch.Pace
	compression api.Compression
	// For TestWatchEnds.
	printer *cachetest.Printer
	garbage *garbageSource
}

func newWatchBench(t *testing.T, limits cache.Limits) *watchBench {
	t.Helper()
	return newPrintingWatchBench(t, limits, table.NewDefaultPrinter())
}

func newPrintingWatchBench(t *testing.T, limits cache.Limits, printer table.Printer) *watchBench {
	t.Helper()
	res := cachetest.PodResource()
	res.Printer = printer
	b := &watchBench{t: t, source: cachetest.New(res)}
	b.start(res, cachetest.VersionLister{Source: b.source}, limits)
	return b
}

// start creates the collection, fed by source.
func (b *watchBench) start(res *source.Resource, source source.Source, limits cache.Limits) {
	b.t.Helper()
	b.manager = cachetest.NewManager(b.t, source, limits)
	b.t.Cleanup(b.manager.Close)
	b.metrics = prometheus.NewPedanticRegistry()
	b.watches = watch.New(cachetest.NewReader(b.t, read.Options{}), b.metrics)
	b.c = cachetest.Collection(b.t, b.manager, res, api.JSON)
}

func (b *watchBench) pod(key string, labels ...string) uint64 {
	rv, _ := api.ParseResourceVersion(b.source.Create(cachetest.Pods, cachetest.Pod(key, "", labels...)).GetResourceVersion())
	synctest.Wait()
	return rv
}

func (b *watchBench) update(key string, labels ...string) {
	b.source.Update(cachetest.Pods, cachetest.Pod(key, "", labels...))
	synctest.Wait()
}

type openWatch struct {
	*watchClient
	stream api.Stream
	end    func(reason.WatchEnd)
	ended  []reason.WatchEnd
}

func (w *openWatch) stop() { w.stream.Stop() }

func (b *watchBench) watch(query string, rep api.Representation) *openWatch {
	b.t.Helper()
	return b.watchWith(query, rep, &watchClient{})
}

func (b *watchBench) watchWith(query string, rep api.Representation, client *watchClient) *openWatch {
	b.t.Helper()
	opts, err := api.ParseListOptions("watch=true&" + query)
	if err != nil {
		b.t.Fatal(err)
	}
	filter, err := object.NewFilter(b.c.Resource().Schema, "", "", opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		b.t.Fatal(err)
	}
	if opts.ShardSelector != "" {
		if filter.Shard, err = shard.Parse(opts.ShardSelector); err != nil {
			b.t.Fatal(err)
		}
	}
	w := &openWatch{watchClient: client}
	resp, end, err := b.watches.Watch(b.t.Context(), b.c, &watch.Request{
		Filter: filter, Options: opts, Rep: rep, MostRecent: b.c.RV(), Message: b.message, Pace: b.pace, Compression: b.compression,
		Ended: func(r reason.WatchEnd) { w.ended = append(w.ended, r) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	w.stream, w.end = resp.Stream, end
	w.stream.Start(w.watchClient)
	return w
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
