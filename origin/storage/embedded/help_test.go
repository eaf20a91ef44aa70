package embedded

import (
	"context"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// memory is a store that ends with the test.
func memory() Options { return Options{Dir: "data", FS: vfs.NewMem()} }

func openAt(t testing.TB, opts Options) *Engine {
	t.Helper()
	e, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustClose(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func mustPut(t testing.TB, e *Engine, key, value string, expect uint64) uint64 {
	t.Helper()
	rev, err := e.Put(context.Background(), key, []byte(value), storage.Precondition{Revision: expect}, 0)
	if err != nil {
		t.Fatalf("put %s at %d: %v", key, expect, err)
	}
	return rev
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
