package watch_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
)

// discardWatch is a connection that discards everything and reports short writes: a bookmark, an
// event.
type discardWatch struct {
	bytes atomic.Int64
	short chan struct{}
}

func (d *discardWatch) WriteFrames(frames [][]byte) error {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	d.bytes.Add(int64(n))
	if n < 16<<10 {
		d.short <- struct{}{}
	}
	return nil
}

func (*discardWatch) Close() {}
func (*discardWatch) Abort() {}

func openDiscarded(b *testing.B, watches *watch.Watches, c *cache.Collection, rep api.Representation, coding api.Compression, client *discardWatch) api.Stream {
	b.Helper()
	opts, err := api.ParseListOptions("watch=true&resourceVersion=0&allowWatchBookmarks=true")
	if err != nil {
		b.Fatal(err)
	}
	resp, _, err := watches.Watch(b.Context(), c, &watch.Request{Options: opts, Rep: rep, Compression: coding})
	if err != nil {
		b.Fatal(err)
	}
	resp.Stream.Start(client)
	<-client.short // the bookmark
	return resp.Stream
}

// fill5000 returns a source with 5,000 pods of about 6 KB in 20 namespaces, and what watches them.
func fill5000(b *testing.B) (*cachetest.Source, *cache.Manager, *watch.Watches) {
	res := cachetest.PodResource()
	src := cachetest.New(res)
	for i := range 5000 {
		src.Create(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%02d/web-%05d", i%20, i), fmt.Sprintf("node-%03d", i%200), 6000, fmt.Sprintf("fiftieth=%d", i%50), "app=web"))
	}
	manager := cachetest.NewManager(b, src, cache.Limits{})
	b.Cleanup(manager.Close)
	reader := cachetest.NewReader(b, read.Options{})
	return src, manager, watch.New(reader, nil)
}

// BenchmarkWatchList opens watches with 5,000 pods as initial events.
func BenchmarkWatchList(b *testing.B) {
	_, manager, watches := fill5000(b)
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		for _, coding := range []api.Compression{api.Identity, api.Gzip, api.Zstd} {
			b.Run(fmt.Sprintf("%v/%v", enc, coding), func(b *testing.B) {
				c, rep := cachetest.Collection(b, manager, cachetest.PodResource(), enc), api.Representation{Encoding: enc}
				client := &discardWatch{short: make(chan struct{}, 1)}
				openDiscarded(b, watches, c, rep, coding, client).Stop()
				b.SetBytes(client.bytes.Load())
				b.ReportAllocs()
				for b.Loop() {
					openDiscarded(b, watches, c, rep, coding, client).Stop()
				}
			})
		}
	}
}

// BenchmarkWatchEvent delivers an event of 6 KB to 20 watches.
func BenchmarkWatchEvent(b *testing.B) {
	const open = 20
	src, manager, watches := fill5000(b)
	c := cachetest.PodCollection(b, manager)
	for _, coding := range []api.Compression{api.Identity, api.Gzip, api.Zstd} {
		b.Run(coding.String(), func(b *testing.B) {
			clients := make([]discardWatch, open)
			for i := range clients {
				clients[i].short = make(chan struct{}, 1)
				defer openDiscarded(b, watches, c, api.Representation{}, coding, &clients[i]).Stop()
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				pod := cachetest.BigPod("ns-07/web-00007", "node-007", 6000, fmt.Sprint("i=", i))
				b.StartTimer()
				src.Update(cachetest.Pods, pod)
				for i := range clients {
					<-clients[i].short
				}
			}
		})
	}
}
