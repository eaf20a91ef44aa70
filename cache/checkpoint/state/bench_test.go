package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// endless is a source of many pods that are listed once. Its watches send only bookmarks.
type endless struct {
	keys  []string // of pods
	pods  [][]byte
	bytes int64
	lists int
}

func newEndless(tb testing.TB, n int) *endless {
	tb.Helper()
	s := &endless{}
	for i := range n {
		key := fmt.Sprintf("namespace-%02d/pod-%06d", i*20/n, i)
		p := cachetest.BigPod(key, fmt.Sprintf("node-%03d", i%200), 6500, fmt.Sprintf("app=%d", i%50))
		p.ResourceVersion = fmt.Sprint(i + 1)
		p.UID = "00000000-0000-4000-8000-000000000000"
		p.SetGroupVersionKind(cachetest.Pods.GroupVersion().WithKind("Pod"))
		raw := cachetest.Encode(p, api.JSON)
		s.keys, s.pods = append(s.keys, key), append(s.pods, raw)
		s.bytes += int64(len(raw))
	}
	return s
}

func (s *endless) version() uint64 { return uint64(len(s.pods)) }

func (s *endless) List(_ context.Context, _ *source.Resource, _ api.Encoding, o source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	meta := source.ListMeta{ResourceVersion: s.version(), Kind: "PodList", APIVersion: "v1"}
	if o.Continue != "" { // a request for one object of the past
		token, err := api.DecodeContinue(o.Continue)
		if err != nil {
			return meta, err
		}
		i, _ := slices.BinarySearch(s.keys, token.Start)
		return meta, visit(bytes.Clone(s.pods[i]))
	}
	if o.Limit == 1 {
		return meta, nil
	}
	s.lists++
	for _, raw := range s.pods {
		if err := visit(append([]byte(nil), raw...)); err != nil {
			return meta, err
		}
	}
	return meta, nil
}

func (s *endless) Watch(ctx context.Context, _ *source.Resource, _ api.Encoding, o source.WatchOptions, handle func(source.Event) error) error {
	if o.SendInitialEvents {
		return source.ErrUnsupported
	}
	if err := handle(source.Event{Type: api.Bookmark, ResourceVersion: s.version()}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *endless) CurrentVersion(context.Context, *source.Resource) (uint64, error) {
	return s.version(), nil
}
func (s *endless) Server(context.Context) (string, error) { return "", source.ErrUnsupported }
func (s *endless) Delay() time.Duration                   { return 0 }
func (s *endless) LastContact() time.Time                 { return time.Now() }

func openManager(tb testing.TB, source source.Source, dir *state.Dir) *cache.Manager {
	tb.Helper()
	m, err := cache.NewManager(cache.Options{
		Source: source, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Checkpoints: checkpoint.Options{Storage: dir, Cluster: func(context.Context) (string, error) { return "one", nil }},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// BenchmarkWarmStart saves and loads 100,000 pods.
func BenchmarkWarmStart(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		b.Run(fmt.Sprintf("sealed=%t", sealed), func(b *testing.B) {
			source := newEndless(b, 100_000)
			options := state.Options{Dir: b.TempDir()}
			if sealed {
				options.Key = make([]byte, state.KeySize)
			}
			dir, err := state.Open(options)
			if err != nil {
				b.Fatal(err)
			}
			m := openManager(b, source, dir)
			if _, err := m.Collection(b.Context(), cachetest.PodResource(), api.JSON); err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			m.Close()
			b.ReportMetric(time.Since(began).Seconds(), "save-s")
			size, _ := dir.Bytes()
			b.ReportMetric(float64(size)/float64(source.bytes), "disk/raw")
			runtime.GC()
			for b.Loop() {
				m := openManager(b, source, dir)
				c, err := m.Collection(b.Context(), cachetest.PodResource(), api.JSON)
				if err != nil || c.Snapshot().Len() != len(source.pods) {
					b.Fatal(err)
				}
				m.Close()
			}
			b.SetBytes(source.bytes)
			if source.lists != 1 {
				b.Errorf("%d lists", source.lists)
			}
			if err := errors.Join(dir.Close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
