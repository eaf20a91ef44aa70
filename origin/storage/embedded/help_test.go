package embedded

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
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

// envAlone is the test that a process was started for by alone.
const envAlone = "KUBEWEIR_ALONE"

// alone runs a test in a process of its own, because it leaves stores behind that have stopped: what Pebble
// does in them never ends, and other tests look for that. It returns whether it did, in the caller's process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envAlone) == t.Name() {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), envAlone+"="+t.Name())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return true
}
