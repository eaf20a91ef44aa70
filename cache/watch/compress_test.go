package watch_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// decodingClient decodes what it receives incrementally, like net/http.
type decodingClient struct {
	watchClient // what was decoded
	pipe        *io.PipeWriter
	compressed  int
	err         error // the decoder's error at the end of the stream, nil if it is complete
}

func newDecodingClient(t testing.TB, coding api.Compression) *decodingClient {
	r, w := io.Pipe()
	c := &decodingClient{pipe: w}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.err = c.decode(coding, r)
		c.watchClient.Close()
		_ = r.CloseWithError(c.err)
	}()
	t.Cleanup(func() { _ = w.Close(); <-done })
	return c
}

func (c *decodingClient) decode(coding api.Compression, r io.Reader) error {
	var decoder io.Reader = r
	switch coding {
	case api.Gzip:
		members, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		members.Multistream(false) // like decoders that know one member only
		decoder = members
	case api.Zstd:
		frames, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer frames.Close()
		decoder = frames
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := decoder.Read(buf)
		if err := c.watchClient.WriteFrames([][]byte{buf[:n]}); err != nil {
			return err
		}
		if err == io.EOF {
			n, err := r.Read(buf)
			if n > 0 || err != io.EOF {
				return fmt.Errorf("%d bytes after the end: %w", n, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *decodingClient) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		n, err := c.pipe.Write(f)
		c.compressed += n
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *decodingClient) Close() { _ = c.pipe.Close() }
func (c *decodingClient) Abort() { _ = c.pipe.CloseWithError(io.ErrUnexpectedEOF) }

// text returns what was decoded since the last call.
func (c *watchClient) text() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(c.data)
	c.data = nil
	return text
}

// openCompressed opens a watch of path ("NAMESPACE?query") and returns it with its header.
func (b *watchBench) openCompressed(path string, rep api.Representation, coding api.Compression, client api.StreamWriter) (*openWatch, api.Header) {
	b.t.Helper()
	namespace, query, _ := strings.Cut(path, "?")
	opts, err := api.ParseListOptions("watch=true&" + query)
	if err != nil {
		b.t.Fatal(err)
	}
	filter, err := object.NewFilter(b.c.Resource().Schema, namespace, "", opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		b.t.Fatal(err)
	}
	w := &openWatch{}
	resp, end, err := b.watches.Watch(b.t.Context(), b.c, &watch.Request{
		Filter: filter, Options: opts, Rep: rep, Compression: coding, MostRecent: b.c.RV(),
		Ended: func(r reason.WatchEnd) { w.ended = append(w.ended, r) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	w.stream, w.end = resp.Stream, end
	w.stream.Start(client)
	return w, resp.Header
}

// read makes b.c a collection in another encoding.
func (b *watchBench) read(enc api.Encoding) {
	b.t.Helper()
	var err error
	if b.c, err = b.manager.Collection(b.t.Context(), b.c.Resource(), enc); err != nil {
		b.t.Fatal(err)
	}
}

// fillBig creates n pods of 6 KB in three namespaces.
func (b *watchBench) fillBig(n int) {
	for i := range n {
		b.source.Create(cachetest.Pods, bigPod(i, "app=web"))
	}
	synctest.Wait()
}

func bigPod(i int, labels ...string) *corev1.Pod {
	return cachetest.BigPod(fmt.Sprintf("ns-%d/web-%03d", i%3, i), fmt.Sprintf("node-%d", i%2), 6000, labels...)
}

// TestCompressedWatch checks that a compressed watch has the events of an uncompressed one, and
// that each arrives immediately.
func TestCompressedWatch(t *testing.T) {
	all := "?" + initial
	selector := "&labelSelector=" + url.QueryEscape("app in (web,db)")
	for n, coding := range []api.Compression{api.Gzip, api.Zstd} {
		for i, test := range []struct {
			path string
			rep  api.Representation
		}{
			{path: all},
			{path: "?resourceVersion=0"},
			{path: "ns-1" + all},
			{path: all + selector},
			{path: "ns-2?" + selector},
			{path: all, rep: api.Representation{Transform: api.PartialMetadata}},
			{path: all, rep: api.Representation{Encoding: api.Protobuf}},
			{path: all, rep: api.Representation{Encoding: api.Protobuf, Transform: api.PartialMetadata}},
			{path: all, rep: api.Representation{DropManagedFields: true}},
			{path: all, rep: api.Representation{DropManagedFields: true, Encoding: api.Protobuf, Transform: api.PartialMetadata}},
		} {
			if !soak.Enabled() && i > 0 && i%2 == n {
				continue // covered by the other encoding
			}
			t.Run(fmt.Sprintf("%v %s %v", coding, test.path, test.rep), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) { testCompressedWatch(t, test.path, test.rep, coding) })
			})
		}
	}
}

func testCompressedWatch(t *testing.T, path string, rep api.Representation, coding api.Compression) {
	b := newWatchBench(t, cache.Limits{})
	b.fillBig(90)
	b.read(rep.Encoding)
	plain, compressed := &watchClient{}, newDecodingClient(t, coding)
	w1, h := b.openCompressed(path, rep, api.Identity, plain)
	if h.Has("Content-Encoding") || h.Has("Vary") {
		t.Error(h)
	}
	w2, h := b.openCompressed(path, rep, coding, compressed)
	if h.Get("Content-Encoding") != coding.String() || h.Get("Vary") != "Accept-Encoding" {
		t.Error(h)
	}
	size := 0
	check := func(what string) {
		t.Helper()
		want, got := plain.text(), compressed.text()
		if got != want {
			t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
		}
		size += len(got)
	}
	check("initial")
	if size <= api.CompressionThreshold {
		t.Errorf("%d bytes", size)
	}
	before := size
	for i := range 6 {
		b.source.Update(cachetest.Pods, bigPod(i, "app=db", fmt.Sprint("round=", i)))
		check("large")
		b.update(fmt.Sprintf("ns-%d/web-%03d", i%3, i), "app=web")
		check("small")
	}
	if size < before+4*200 { // at least the events of one namespace
		t.Errorf("%d bytes, then %d", before, size)
	}
	b.source.Update(cachetest.Pods, bigPod(7, "app=none")) // leaves the selection in its last state
	b.source.Update(cachetest.Pods, bigPod(8, "app=none"))
	check("left")
	time.Sleep(bookmarkPeriod)
	check("bookmark")
	w1.end(reason.WatchDraining)
	w2.end(reason.WatchDraining)
	check("end")
	if !compressed.closed || compressed.err != nil {
		t.Errorf("closed %v, %v", compressed.closed, compressed.err)
	}
	if compressed.compressed > size/4 {
		t.Errorf("%d bytes of %d", compressed.compressed, size)
	}
	w1.stop()
	w2.stop()
}

// bookmarkPeriod is upstream's.
const bookmarkPeriod = time.Minute

// TestUncompressedWatches checks watches that are not compressed although the client accepts gzip.
func TestUncompressedWatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.fillBig(60)
		for path, rep := range map[string]api.Representation{
			fmt.Sprint("?resourceVersion=", b.c.RV()):                                             {},
			"?sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true": {},
			"ns-1?" + initial: {}, // 120 KB
			"?" + initial + "&fieldSelector=spec.nodeName%3Dnode-1": {},
			"?" + initial + "&labelSelector=none":                   {},
			"?" + initial + "&labelSelector=app%21%3Dweb":           {},
			"?" + initial: {Transform: api.Table},
		} {
			client := &watchClient{}
			w, h := b.openCompressed(path, rep, api.Gzip, client)
			if h.Has("Content-Encoding") || h.Has("Vary") {
				t.Errorf("%s: %v", path, h)
			}
			client.lines(t) // discards them
			w.stop()
		}
	})
}

// TestLargeInitialEventsAreNotCompressed checks that initial events too large for the cache are not
// compressed, because each watch would do it again. For metadata-only watches the size of the
// metadata counts.
func TestLargeInitialEventsAreNotCompressed(t *testing.T) {
	small := func(i int) *corev1.Pod { // except for its spec
		p := cachetest.Pod(fmt.Sprintf("ns-%d/web-%03d", i%3, i), "")
		p.Spec.Containers = []corev1.Container{{Name: "web", Args: []string{strings.Repeat("x", 6000)}}}
		return p
	}
	big := func(i int) *corev1.Pod { return bigPod(i) }
	metadata := api.Representation{Transform: api.PartialMetadata}
	for _, test := range []struct {
		room int64
		rep  api.Representation
		n    int
		pod  func(int) *corev1.Pod
		want string
	}{
		{64 << 10, api.Representation{}, 60, big, "gzip"},
		{32 << 10, api.Representation{}, 60, big, ""},
		{64 << 10, metadata, 600, small, "gzip"},
		{8 << 10, metadata, 600, small, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			b := newWatchBench(t, cache.Limits{})
			for i := range test.n {
				b.source.Create(cachetest.Pods, test.pod(i))
			}
			synctest.Wait()
			reader := cachetest.NewReader(t, read.Options{DerivedBytes: test.room})
			b.watches = watch.New(reader, nil)
			w, h := b.openCompressed("?"+initial, test.rep, api.Gzip, &watchClient{})
			if got := h.Get("Content-Encoding"); got != test.want {
				t.Errorf("room of %d for %d pods: %q, want %q", test.room, test.n, got, test.want)
			}
			w.stop()
		})
	}
}

// TestCompressedWatchEnds checks that a compressed watch always ends completely and with the right
// checksum, unless the client has left or a write was interrupted.
func TestCompressedWatchEnds(t *testing.T) {
	for name, end := range map[string]func(b *watchBench, w *openWatch){
		"timeout": func(*watchBench, *openWatch) { time.Sleep(10 * time.Minute) },
		"revoked": func(_ *watchBench, w *openWatch) { w.end(reason.PermissionRevoked) },
		"stopped": func(b *watchBench, _ *openWatch) { b.manager.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newWatchBench(t, cache.Limits{})
				b.fillBig(90)
				client := newDecodingClient(t, api.Gzip)
				w, _ := b.openCompressed("?timeoutSeconds=300&"+initial, api.Representation{}, api.Gzip, client)
				synctest.Wait()
				end(b, w)
				synctest.Wait()
				if n := strings.Count(client.text(), "\n"); n < 91 || !client.closed || client.err != nil {
					t.Errorf("%d events, closed %v: %v", n, client.closed, client.err)
				}
				w.stop()
			})
		})
	}
}

// TestCompressedWatchOfSlowReaderEndsComplete checks that a reader that falls off the history
// receives the ERROR event as the end of a complete body.
func TestCompressedWatchOfSlowReaderEndsComplete(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{HistoryEvents: 100, HistoryAge: time.Second})
		b.fillBig(90)
		client := newDecodingClient(t, api.Gzip)
		client.blocked = make(chan struct{})
		w, _ := b.openCompressed("?"+initial, api.Representation{}, api.Gzip, client)
		for i := range 300 {
			b.source.Update(cachetest.Pods, bigPod(i%90, fmt.Sprint("i=", i)))
			time.Sleep(100 * time.Millisecond)
		}
		close(client.blocked)
		text := client.text()
		if !strings.HasPrefix(text[strings.LastIndex(text[:len(text)-1], "\n")+1:], `{"type":"ERROR"`) || !client.closed || client.err != nil {
			t.Errorf("closed %v, %v, ...%s", client.closed, client.err, text[max(0, len(text)-200):])
		}
		w.stop()
		if len(w.ended) != 1 || w.ended[0] != reason.WatchSlow {
			t.Error(w.ended)
		}
	})
}

// TestDepartingClientDisturbsNoCompressedWatch checks that a client that leaves during the initial
// events disturbs no other.
func TestDepartingClientDisturbsNoCompressedWatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.fillBig(90)
		leaving, staying := newDecodingClient(t, api.Gzip), newDecodingClient(t, api.Gzip)
		leaving.fail = io.ErrClosedPipe // its decoder fails at the first bytes
		w1, _ := b.openCompressed("?"+initial, api.Representation{}, api.Gzip, leaving)
		w2, _ := b.openCompressed("?"+initial, api.Representation{}, api.Gzip, staying)
		if n := strings.Count(staying.text(), "\n"); n != 91 {
			t.Errorf("%d events", n)
		}
		w1.stop()
		if len(w1.ended) != 1 || w1.ended[0] != reason.WatchClient {
			t.Error(w1.ended)
		}
		b.update("ns-0/web-000", "app=db")
		if n := strings.Count(staying.text(), "\n"); n != 1 {
			t.Errorf("%d events", n)
		}
		w2.stop()
	})
}

// pieceClient records the addresses of the frames that it receives.
type pieceClient struct {
	watchClient
	at []*byte
}

func (c *pieceClient) WriteFrames(frames [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range frames {
		c.at, c.data = append(c.at, &f[0]), append(c.data, f...)
	}
	return nil
}

// TestWatchesShareCompression checks that 500 informers that start together share the same pieces,
// and later the same event.
func TestWatchesShareCompression(t *testing.T) {
	const watches = 500
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.fillBig(200)
		clients := make([]pieceClient, watches)
		open := make([]*openWatch, watches)
		var starting sync.WaitGroup
		for i := range watches {
			starting.Go(func() {
				open[i], _ = b.openCompressed("?"+initial, api.Representation{}, api.Gzip, &clients[i])
			})
		}
		starting.Wait()
		b.source.Update(cachetest.Pods, bigPod(0, "app=other"))
		time.Sleep(time.Second) // writes to many watches are spaced
		synctest.Wait()
		first := &clients[0]
		if len(first.at) < 5 {
			t.Fatalf("%d frames", len(first.at))
		}
		for i := range clients {
			// Not shared are the header and the bookmark after the initial events.
			c, bookmark := &clients[i], len(first.at)-2
			if !slices.Equal(c.at[1:bookmark], first.at[1:bookmark]) || c.at[bookmark+1] != first.at[bookmark+1] {
				t.Errorf("watch %d has %d frames of its own, or some of them", i, len(c.at))
			}
			open[i].stop()
		}
		text, err := gunzipAll(first.data)
		if n := bytes.Count(text, []byte("\n")); n != 202 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d events, %v", n, err)
		}
	})
}

func gunzipAll(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
