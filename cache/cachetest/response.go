package cachetest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
)

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

// Printer counts the rows that it prints, and fails when told to.
type Printer struct {
	table.Printer
	Rows   atomic.Int64
	Broken atomic.Bool
	// Fatal is the name of an object whose printing panics, or nil.
	Fatal atomic.Pointer[string]
}

// Row implements table.Printer.
func (p *Printer) Row(raw []byte) (*table.Row, error) {
	p.Rows.Add(1)
	if p.Broken.Load() {
		return nil, errors.New("cannot print this")
	}
	if name := p.Fatal.Load(); name != nil && bytes.Contains(raw, []byte(*name)) {
		panic("cannot print " + *name)
	}
	return p.Printer.Row(raw)
}
