package store_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// benchSource holds encoded pods of about 6 KB and sends events on request.
type benchSource struct {
	enc    api.Encoding
	items  [][]byte
	bytes  int64
	events chan []byte
	done   chan struct{}
}

func newBenchSource(tb testing.TB, pods int, enc api.Encoding) *benchSource {
	tb.Helper()
	s := &benchSource{enc: enc, events: make(chan []byte), done: make(chan struct{})}
	for i := range pods {
		s.items = append(s.items, s.pod(i, i+1))
		s.bytes += int64(len(s.items[i]))
	}
	return s
}

// pod returns pod i at a version: in one of 20 namespaces, on one of 200 nodes, of one of 50 apps.
func (s *benchSource) pod(i, rv int) []byte {
	key := fmt.Sprintf("namespace-%02d/pod-%06d", i*20/5000%20, i)
	p := cachetest.BigPod(key, fmt.Sprintf("node-%03d", i%200), 6000,
		fmt.Sprintf("app=%d", i%50), "tier=backend", "team=platform", fmt.Sprintf("pod-template-hash=%08d", i%50))
	p.ResourceVersion = fmt.Sprint(rv)
	p.UID = "00000000-0000-4000-8000-000000000000"
	p.SetGroupVersionKind(cachetest.Pods.GroupVersion().WithKind("Pod"))
	return cachetest.Encode(p, s.enc)
}

func (s *benchSource) List(context.Context, *source.Resource, api.Encoding, source.ListOptions, func([]byte) error) (source.ListMeta, error) {
	return source.ListMeta{ResourceVersion: uint64(len(s.items)), Kind: "PodList", APIVersion: "v1"}, nil
}

func (s *benchSource) Watch(ctx context.Context, _ *source.Resource, _ api.Encoding, _ source.WatchOptions, handle func(source.Event) error) error {
	for _, item := range s.items {
		if err := handle(source.Event{Type: api.Added, Object: bytes.Clone(item)}); err != nil {
			return err
		}
	}
	if err := handle(source.Event{Type: api.Bookmark, InitialEventsEnd: true, ResourceVersion: uint64(len(s.items))}); err != nil {
		return err
	}
	for {
		select {
		case raw := <-s.events:
			if err := handle(source.Event{Type: api.Modified, Object: raw}); err != nil {
				return err
			}
		case s.done <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *benchSource) CurrentVersion(context.Context, *source.Resource) (uint64, error) {
	return uint64(len(s.items)), nil
}

func (s *benchSource) Server(context.Context) (string, error) { return "", source.ErrUnsupported }

func (s *benchSource) Delay() time.Duration   { return 0 }
func (s *benchSource) LastContact() time.Time { return time.Now() }

func (s *benchSource) collection(tb testing.TB, m *cache.Manager) *cache.Collection {
	tb.Helper()
	c, err := m.Collection(context.Background(), cachetest.PodResource(), s.enc)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// BenchmarkColdSync measures the time and memory of filling a collection, without the source's own.
// resident is the heap in use afterwards as a multiple of the objects' bytes.
func BenchmarkColdSync(b *testing.B) {
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		b.Run(enc.String(), func(b *testing.B) {
			s := newBenchSource(b, 5000, enc)
			b.SetBytes(s.bytes)
			b.ReportAllocs()
			var resident float64
			for b.Loop() {
				b.StopTimer()
				before := heap()
				m := cachetest.NewManager(b, s, cache.Limits{})
				b.StartTimer()
				c := s.collection(b, m)
				b.StopTimer()
				resident = float64(heap()-before) / float64(s.bytes)
				if c.Snapshot().Len() != len(s.items) {
					b.Fatal("not complete")
				}
				m.Close()
				b.StartTimer()
			}
			b.ReportMetric(resident, "resident/raw")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return ms.HeapAlloc
}

// BenchmarkApply applies one event from its bytes to the store and the event ring, with or without
// a snapshot after each.
func BenchmarkApply(b *testing.B) {
	for _, views := range []bool{false, true} {
		for _, indexed := range []bool{false, true} {
			b.Run(fmt.Sprintf("views=%v/indexed=%v", views, indexed), func(b *testing.B) {
				s := newBenchSource(b, 5000, api.JSON)
				m := cachetest.NewManager(b, s, cache.Limits{})
				defer m.Close()
				c := s.collection(b, m)
				if indexed {
					index(b, c, "app=1", "")
					index(b, c, "", "spec.nodeName=node-001")
				}
				raws := make([][]byte, 4096)
				rv := len(s.items)
				refill := func() {
					b.StopTimer()
					for i := range raws {
						rv++
						raws[i] = s.pod((rv*7919)%len(s.items), rv)
					}
					b.StartTimer()
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					if n%len(raws) == 0 {
						refill()
					}
					s.events <- raws[n%len(raws)]
					if views {
						<-s.done
						c.Snapshot()
					}
					n++
				}
				<-s.done
				if c.RV() < uint64(len(s.items)+n) {
					b.Fatalf("at %d", c.RV())
				}
			})
		}
	}
}

// index makes Select build an index.
func index(b *testing.B, c *cache.Collection, label, field string) {
	b.Helper()
	f := cachetest.Filter(b, c.Resource(), "", label, field)
	for range 1000 {
		if _, at := c.Select(b.Context(), f); at != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	b.Fatal("no index")
}

func BenchmarkStore(b *testing.B) {
	const head = 5000
	start := func(limits cache.Limits) (*cache.Manager, *cache.Collection) {
		s := newBenchSource(b, head, api.JSON)
		m := cachetest.NewManager(b, s, limits)
		b.Cleanup(m.Close)
		c := s.collection(b, m)
		for i := range 1000 {
			s.events <- s.pod(i*5, head+1+i)
		}
		<-s.done
		return m, c
	}
	m, c := start(cache.Limits{})
	index(b, c, "app=1", "")
	index(b, c, "", "spec.nodeName=node-001")
	v := c.Snapshot()

	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	ctx := context.Background()
	res := cachetest.PodResource()
	run("Collection", func() { _, _ = m.Collection(ctx, res, api.JSON) })
	run("State", func() { c.State() })
	run("View", func() { c.Snapshot() })
	run("Get", func() { v.Get("namespace-01/pod-000300") })
	visited := 0
	visit := func(*object.Object) bool { visited++; return true }
	run("Ascend5000", func() { v.Ascend("", "", visit) })
	run("AscendNamespace250", func() { v.Ascend("namespace-01", "", visit) })
	run("CountFrom", func() { v.CountFrom("", "namespace-01/pod-000300") })
	for _, sel := range []struct{ name, ns, label, field string }{
		{"SelectLabel100", "", "app=1", ""},
		{"SelectField25", "", "", "spec.nodeName=node-001"},
		{"SelectBoth", "", "app=1", "spec.nodeName=node-001"},
		{"SelectNamespaceLabel", "namespace-01", "app=1", ""},
	} {
		f := cachetest.Filter(b, res, sel.ns, sel.label, sel.field)
		run(sel.name, func() {
			if _, at := c.Select(b.Context(), f); at == nil {
				b.Fatal("no index")
			}
		})
	}
	f := cachetest.Filter(b, res, "", "team=nobody", "spec.nodeName!=x")
	run("ScanLabel5000", func() {
		v.Ascend("", "", func(o *object.Object) bool {
			if f.Matches(o) {
				visited++
			}
			return true
		})
	})
	_, forgetful := start(cache.Limits{SnapshotBytes: 1}) // retains no snapshots
	rv := uint64(head + 500)
	run("ViewAtUndo500", func() {
		rv = head + 500 + (rv+1)%20
		if _, err := forgetful.SnapshotAt(rv); err != nil {
			b.Fatal(err)
		}
	})
	c.Retain(v)
	run("ViewAtRetained", func() { _, _ = c.SnapshotAt(v.RV()) })
}
