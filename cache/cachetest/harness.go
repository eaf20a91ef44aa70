package cachetest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// NewManager returns a manager of collections of src. It logs nothing.
func NewManager(t testing.TB, src source.Source, limits cache.Limits) *cache.Manager {
	t.Helper()
	m, err := cache.NewManager(cache.Options{Source: src, Limits: limits, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// WithManager runs f with a source of pods, nodes and widgets and a manager, in fake time.
func WithManager(t *testing.T, limits cache.Limits, f func(t *testing.T, s *Source, m *cache.Manager)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		s := New(PodResource(), NodeResource(), WidgetResource())
		m := NewManager(t, s, limits)
		defer m.Close()
		f(t, s, m)
	})
}

// Collection returns the collection of res in enc.
func Collection(t testing.TB, m *cache.Manager, res *source.Resource, enc api.Encoding) *cache.Collection {
	t.Helper()
	c, err := m.Collection(t.Context(), res, enc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// PodCollection returns the collection of pods in JSON.
func PodCollection(t testing.TB, m *cache.Manager) *cache.Collection {
	t.Helper()
	return Collection(t, m, PodResource(), api.JSON)
}

// Status returns the status of a collection.
func Status(m *cache.Manager, c *cache.Collection) cache.CollectionStatus {
	all := m.Status()
	return all[slices.IndexFunc(all, func(s cache.CollectionStatus) bool {
		return s.Resource == c.Resource().GroupVersionResource && s.Encoding == c.Encoding()
	})]
}

// Filter compiles selectors.
func Filter(t testing.TB, res *source.Resource, namespace, label, field string) *object.Filter {
	t.Helper()
	f, err := newFilter(res, namespace, label, field)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// All returns the objects of a namespace, "" for all, from a key on.
func All(v *store.Snapshot, namespace, from string) []*object.Object {
	var objs []*object.Object
	v.Ascend(namespace, from, func(o *object.Object) bool {
		objs = append(objs, o)
		return true
	})
	return objs
}

// Deliveries returns what w has to deliver, as "TYPE key@version" and its error.
func Deliveries(w *watchmux.Watcher) string {
	deliveries, _, err := w.Next(nil, 100)
	var out []string
	for _, d := range deliveries {
		out = append(out, fmt.Sprintf("%s %s@%d", d.Type, d.Object.Key, d.RV))
	}
	if err != nil {
		out = append(out, err.Error())
	}
	return strings.Join(out, " ")
}

// ShardOf returns the selector of shard i of n by a field.
func ShardOf(field string, i, n uint64) string {
	step := (1<<64-1)/n + 1
	end := "0x10000000000000000"
	if i+1 < n {
		end = fmt.Sprintf("0x%016x", (i+1)*step)
	}
	return fmt.Sprintf("shardRange(object.metadata.%s, '0x%016x', '%s')", field, i*step, end)
}

// NewReader returns a reader that is closed at the end of the test.
func NewReader(t testing.TB, o read.Options) *read.Reader {
	t.Helper()
	r, err := read.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// ReadRequest parses "namespace/name?query" (either part may be missing).
func ReadRequest(t testing.TB, path string, rep api.Representation) *read.Request {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	namespace, name, _ := strings.Cut(path, "/")
	opts, err := api.ParseListOptions(query)
	if err != nil {
		t.Fatal(err)
	}
	return &read.Request{Namespace: namespace, Name: name, Rep: rep, Options: opts}
}

// Body writes a response, checks its length and decompresses it.
func Body(t testing.TB, resp *api.Response) []byte {
	t.Helper()
	data := resp.Body
	if resp.BodyTo != nil {
		var out bytes.Buffer
		n, err := resp.BodyTo.WriteTo(&out)
		if err != nil || n != int64(out.Len()) {
			t.Fatalf("wrote %d of %d: %v", n, out.Len(), err)
		}
		data = out.Bytes()
	}
	if resp.Length >= 0 && resp.Length != int64(len(data)) {
		t.Errorf("length %d, want %d", resp.Length, len(data))
	}
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r.Multistream(false)
		if data, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	case "zstd":
		r, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if data, err = r.DecodeAll(data, nil); err != nil {
			t.Fatal(err)
		}
	case "":
	default:
		t.Errorf("Content-Encoding %q", coding)
	}
	return data
}

// Printer counts the rows that it prints, and fails on request.
type Printer struct {
	table.Printer
	Rows   atomic.Int64
	Broken atomic.Bool
}

// Row implements table.Printer.
func (p *Printer) Row(raw []byte) (*table.Row, error) {
	p.Rows.Add(1)
	if p.Broken.Load() {
		return nil, errors.New("cannot print this")
	}
	return p.Printer.Row(raw)
}
