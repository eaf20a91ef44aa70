package read_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

func (b *readBench) list(t *testing.T, c *cache.Collection, path string, change func(*read.Request)) *api.Response {
	t.Helper()
	req := cachetest.ReadRequest(t, path, api.Representation{})
	req.MostRecent = true
	if change != nil {
		change(req)
	}
	resp, err := b.reader.List(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestConditionalReads checks that the ETag stays the same as long as the body does, and no longer.
func TestConditionalReads(t *testing.T) {
	b := newReadBench(t)
	b.fill(20, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	seen := map[string]string{}
	for name, rep := range representations() {
		if rep.Encoding == api.Protobuf {
			continue
		}
		for _, coding := range []api.Compression{api.Identity, api.Gzip, api.Zstd} {
			for _, path := range append(conditionalScopes(), "ns-1/web-00001?resourceVersion=0") {
				tag := b.etag(t, c, path, rep, coding, "")
				what := fmt.Sprint(name, coding, path)
				if other, ok := seen[tag]; ok {
					t.Errorf("%s and %s have the same ETag %s", what, other, tag)
				}
				seen[tag] = what
				for header, match := range map[string]bool{tag: true, "W/" + tag: true, `"x", ` + tag: true, "*": true, `"x"`: false, strings.Trim(tag, `"`): false} {
					if got := b.etag(t, c, path, rep, coding, header); (got == "") != match {
						t.Errorf("%s If-None-Match: %s: %q", what, header, got)
					}
				}
			}
		}
	}
	b.source.Update(cachetest.Pods, cachetest.Pod("ns-1/web-00001", "elsewhere"))
	c = b.collection(cachetest.Pods, api.JSON)
	for _, path := range []string{"?resourceVersion=0", "ns-1/web-00001?resourceVersion=0"} {
		if tag := b.etag(t, c, path, api.Representation{}, api.Identity, ""); seen[tag] != "" {
			t.Errorf("%s has the ETag of before the change", path)
		}
	}
}

// conditionalScopes returns lists of different objects of one state.
func conditionalScopes() []string {
	return []string{
		"?resourceVersion=0", "ns-1/?resourceVersion=0", "?resourceVersion=0&labelSelector=app", "ns-1/?resourceVersion=0&labelSelector=app",
		"?resourceVersion=0" + shardQuery(cachetest.ShardOf("uid", 0, 2)), "?resourceVersion=0" + shardQuery(cachetest.ShardOf("uid", 1, 2)), "?resourceVersion=0" + shardQuery(cachetest.ShardOf("namespace", 0, 2)),
	}
}

// etag performs a read and returns its ETag, "" for a 304.
func (b *readBench) etag(t *testing.T, c *cache.Collection, path string, rep api.Representation, coding api.Compression, match string) string {
	t.Helper()
	req := cachetest.ReadRequest(t, path, rep)
	req.Compression, req.IfNoneMatch = coding, match
	read := b.reader.List
	if req.Name != "" {
		read = b.reader.Get
	}
	resp, err := read(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	tag := resp.Header.Get("Etag")
	if tag == "" || resp.Header.Get("Cache-Control") != "no-cache, private" {
		t.Fatalf("%v", resp.Header)
	}
	if resp.Status == 304 {
		if resp.Body != nil || resp.BodyTo != nil || resp.Length != 0 || !strings.Contains(match, tag) && match != "*" {
			t.Errorf("304 for %s: %+v", match, resp)
		}
		return ""
	}
	return tag
}

// TestTableETagFollowsTheClock checks that a Table's ETag lasts until one of its times renders
// differently.
func TestTableETagFollowsTheClock(t *testing.T) { bubble.Test(t, testTableETag) }

func testTableETag(t *testing.T) {
	b := newReadBench(t)
	printer := columnsPrinter(t)
	b.res[cachetest.Widgets].Printer = printer
	b.source.Create(cachetest.Widgets, cachetest.Widget("ns-1/a", "red"))
	b.source.Create(cachetest.Widgets, cachetest.Widget("ns-1/b", "red"))
	c := b.collection(cachetest.Widgets, api.JSON)
	created := b.source.Objects(cachetest.Widgets)[0].GetCreationTimestamp().Time
	rep := api.Representation{Transform: api.Table}
	for _, path := range []string{"?resourceVersion=0", "ns-1/a?resourceVersion=0"} {
		b.now = created.Add(30 * time.Minute)
		first := b.etag(t, c, path, rep, api.Identity, "")
		synctest.Wait() // derived values are found from now on
		b.now = b.now.Add(20 * time.Second)
		if tag := b.etag(t, c, path, rep, api.Identity, first); tag != "" {
			t.Errorf("%s: %s became %s within the minute", path, first, tag)
		}
		b.now = b.now.Add(50 * time.Second)
		if tag := b.etag(t, c, path, rep, api.Identity, first); tag == "" {
			t.Errorf("%s: %s still matches after a minute", path, first)
		}
	}
	body := string(cachetest.Body(t, b.list(t, c, "?resourceVersion=0", func(r *read.Request) { r.Rep = rep })))
	if !strings.Contains(body, `"31m"`) {
		t.Errorf("no age of 31m in %s", body)
	}
}

// TestConcurrentReadsShareDerivedValues checks that concurrent requests share derived values.
func TestConcurrentReadsShareDerivedValues(t *testing.T) {
	b := newReadBench(t)
	printer := &cachetest.Printer{Printer: table.NewDefaultPrinter()}
	b.res[cachetest.Pods].Printer = printer
	b.fill(400, 1000)
	c := b.collection(cachetest.Pods, api.JSON)
	var wg sync.WaitGroup
	bodies := make([][]byte, 16)
	for i := range bodies {
		wg.Go(func() {
			bodies[i] = cachetest.Body(t, b.list(t, c, "?resourceVersion=0", func(r *read.Request) {
				r.Rep.Transform = api.Table
				r.Compression = api.Compression(i % 3)
			}))
		})
	}
	wg.Wait()
	for _, body := range bodies {
		if !bytes.Equal(body, bodies[0]) {
			t.Error("bodies differ")
		}
	}
	if n := printer.Rows.Load(); n != 400 {
		t.Errorf("%d rows printed, want 400", n)
	}
}

// TestUnprintableRowIsForwarded checks that the request is forwarded.
func TestUnprintableRowIsForwarded(t *testing.T) {
	b := newReadBench(t)
	printer := &cachetest.Printer{Printer: table.NewDefaultPrinter()}
	printer.Broken.Store(true)
	b.res[cachetest.Pods].Printer = printer
	b.fill(3, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	for _, path := range []string{"?resourceVersion=0", "ns-1/web-00001?resourceVersion=0"} {
		req := cachetest.ReadRequest(t, path, api.Representation{Transform: api.Table})
		got := b.reader.List
		if req.Name != "" {
			got = b.reader.Get
		}
		if _, err := got(t.Context(), c, req); !errors.Is(err, read.ErrForward) {
			t.Errorf("%s: %v", path, err)
		}
	}
	printer.Broken.Store(false)
	if resp := b.list(t, c, "?resourceVersion=0", func(r *read.Request) { r.Rep.Transform = api.Table }); resp.Status != 200 {
		t.Errorf("an error was cached: %d", resp.Status)
	}
}

// TestReadsWhileWriting lists in all forms while objects change, and compares each list with a
// plain one at the same version.
func TestReadsWhileWriting(t *testing.T) {
	b := newReadBench(t)
	b.fill(300, 1000)
	gvrs := []schema.GroupVersionResource{cachetest.Pods, cachetest.Widgets}
	collections := map[schema.GroupVersionResource]*cache.Collection{}
	for _, gvr := range gvrs {
		collections[gvr] = b.collection(gvr, api.JSON)
	}
	stop := make(chan struct{})
	var writer, readers sync.WaitGroup
	writer.Go(func() {
		rnd := rand.New(rand.NewPCG(3, 4))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			k := rnd.IntN(300)
			b.source.Update(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%d/web-%05d", k%4, k), "n", 600+rnd.IntN(900), fmt.Sprintf("tenth=%d", rnd.IntN(10))))
			k -= k % 10
			b.source.Update(cachetest.Widgets, cachetest.Widget(fmt.Sprintf("ns-%d/widget-%05d", k%4, k), fmt.Sprint(i), "tenth=1"))
		}
	})
	for i := range 4 {
		readers.Go(func() {
			for j := range soak.Cases(20, 60) {
				gvr := gvrs[(i+j)%2]
				path := []string{"", "ns-2"}[j/2%2]
				selector := []string{"", "&labelSelector=tenth%3D1"}[j/4%2]
				b.compareAtVersion(t, collections[gvr], path, selector, api.Representation{Pretty: j%5 == 0, Transform: api.Transform(j % 3)}, api.Compression(j%3))
			}
		})
	}
	readers.Wait()
	close(stop)
	writer.Wait()
}

func (b *readBench) compareAtVersion(t *testing.T, c *cache.Collection, path, selector string, rep api.Representation, coding api.Compression) {
	body := cachetest.Body(t, b.list(t, c, path+"?resourceVersion=0"+selector, func(r *read.Request) { r.Rep, r.Compression = rep, coding }))
	rv := listMetaOf(t, body).ResourceVersion
	again := cachetest.Body(t, b.list(t, c, path+"?resourceVersionMatch=Exact&resourceVersion="+rv+selector, func(r *read.Request) { r.Rep = rep }))
	if !bytes.Equal(body, again) {
		t.Errorf("%s %+v %v at %s: the same version reads differently: %d bytes, %d bytes", path, rep, coding, rv, len(body), len(again))
	}
}

// failingWriter fails after some bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		n := w.left
		w.left = 0
		return n, errors.New("client left")
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWriteErrors(t *testing.T) {
	b := newReadBench(t)
	b.fill(600, 2000)
	c := b.collection(cachetest.Pods, api.JSON)
	for name, change := range map[string]func(*read.Request){
		"json":   nil,
		"table":  func(r *read.Request) { r.Rep.Transform = api.Table },
		"gzip":   func(r *read.Request) { r.Compression = api.Gzip },
		"pretty": func(r *read.Request) { r.Rep.Pretty = true },
	} {
		n, err := b.list(t, c, "?resourceVersion=0", change).BodyTo.WriteTo(&failingWriter{left: 1000})
		if n != 1000 || err == nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// TestNoAllocationPerObject checks that lists of more objects do not allocate more.
func TestNoAllocationPerObject(t *testing.T) { bubble.Test(t, testNoAllocationPerObject) }

func testNoAllocationPerObject(t *testing.T) {
	b := newReadBench(t)
	b.fill(1000, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	for _, rep := range []api.Representation{{}, {Transform: api.PartialMetadata}, {Transform: api.Table}} {
		count := func(path string) float64 {
			req := cachetest.ReadRequest(t, path, rep)
			b.list(t, c, path, func(r *read.Request) { r.Rep = rep })
			synctest.Wait() // derived values are found from now on
			return testing.AllocsPerRun(20, func() {
				resp, err := b.reader.List(t.Context(), c, req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := resp.BodyTo.WriteTo(&discard{}); err != nil {
					t.Fatal(err)
				}
			})
		}
		if one, four := count("ns-1?resourceVersion=0"), count("?resourceVersion=0"); four > one+3 {
			t.Errorf("%+v: %v allocations for 250 objects, %v for 1,000", rep, one, four)
		}
	}
}

func TestReaderMetrics(t *testing.T) {
	b := newReadBench(t)
	registry := prometheus.NewPedanticRegistry()
	reader := cachetest.NewReader(t, read.Options{Registerer: registry})
	b.reader = reader
	b.fill(300, 1000)
	c := b.collection(cachetest.Pods, api.JSON)
	for range 3 {
		cachetest.Body(t, b.list(t, c, "?resourceVersion=0", nil))
		cachetest.Body(t, b.list(t, c, "?resourceVersion=0", func(r *read.Request) { r.Compression = api.Gzip }))
	}
	if n, err := testutil.GatherAndCount(registry, "kubeweir_read_body_bytes_total", "kubeweir_derived_bytes", "kubeweir_derived_lookups_total"); err != nil || n < 20 {
		t.Errorf("%d series, %v", n, err)
	}
	if _, err := read.New(read.Options{Registerer: registry}); err == nil {
		t.Error("registered twice without an error")
	}
}

// columnsPrinter returns a printer of custom resources with an age.
func columnsPrinter(t *testing.T) table.Printer {
	t.Helper()
	p, err := table.NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
