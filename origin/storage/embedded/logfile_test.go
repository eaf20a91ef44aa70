package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestLogIsLongerThanWritten: a log is made longer ahead of what is written, and what is found in it by who opens the
// folder after a crash ends where the zeros begin.
func TestLogIsLongerThanWritten(t *testing.T) {
	dir, crashed := t.TempDir(), t.TempDir()
	e := openAt(t, Options{Dir: dir})
	defer mustClose(t, e)
	last := uint64(0)
	for i := range 50 {
		last = mustPut(t, e, fmt.Sprintf("key%d", i), "value", 0)
	}
	var longest int64
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if filepath.Ext(path) == ".log" {
			if info, err := entry.Info(); err == nil {
				longest = max(longest, info.Size())
			}
		}
		return nil
	})
	if err != nil || longest < zeroStep {
		t.Errorf("the longest log has %d bytes, %v", longest, err)
	}
	// The copy holds the files that a killed process leaves behind.
	if err := os.CopyFS(filepath.Join(crashed, "copy"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again := openAt(t, Options{Dir: filepath.Join(crashed, "copy")})
	defer mustClose(t, again)
	if got := mustRevision(t, again); got != last {
		t.Errorf("revision %d, want %d", got, last)
	}
	mustVerify(t, again)
}

// TestLogThatCannotBeLonger: no write fails for the lack of zeros.
func TestLogThatCannotBeLonger(t *testing.T) {
	rejected := 0
	fs := hook(vfs.NewMem(), func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWriteAt && filepath.Ext(op.Path) == ".log" {
			rejected++
			return os.ErrInvalid
		}
		return nil
	})
	e := openAt(t, Options{Dir: "data", FS: fs})
	defer mustClose(t, e)
	for i := range 10 {
		mustPut(t, e, fmt.Sprintf("key%d", i), "value", 0)
	}
	if rejected == 0 || rejected > 3 {
		t.Errorf("%d attempts", rejected)
	}
	mustVerify(t, e)
}
