package state_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
)

// TestRecords checks that the last record of a name is read, by another process too, and that
// records are no checkpoints.
func TestRecords(t *testing.T) {
	mem := vfs.NewMem()
	d := open(t, state.Options{FS: mem, Key: key})
	if _, err := d.LoadRecord("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	for _, content := range []string{"", "one", "two"} {
		if err := d.SaveRecord(t.Context(), "a", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.LoadRecord("a"); err != nil || string(got) != content {
			t.Errorf("%q, %v, want %q", got, err, content)
		}
	}
	before, _ := d.Bytes()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, state.Options{FS: mem, Key: key})
	if got, err := d.LoadRecord("a"); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if now, _ := d.Bytes(); now != before || now == 0 {
		t.Errorf("%d bytes, before %d", now, before)
	}
	if names, err := d.Names(); err != nil || len(names) > 0 {
		t.Errorf("images %q, %v", names, err)
	}
	if err := errors.Join(d.RemoveRecord("a"), d.RemoveRecord("a")); err != nil {
		t.Error(err)
	}
	if now, _ := d.Bytes(); now != 0 {
		t.Errorf("%d bytes", now)
	}
}

// TestRecordsAreBounded checks that records count against the limit of all files, and that no file
// is begun for one without room.
func TestRecordsAreBounded(t *testing.T) {
	full := false
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			t.Errorf("wrote to the disk: %v", op)
		}
		return nil
	}))
	d := open(t, state.Options{FS: disk, MaxBytes: 100})
	if err := d.SaveRecord(t.Context(), "a", []byte("small")); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 200)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	full = true
	if err := d.SaveRecord(t.Context(), "a", noise); !errors.Is(err, checkpoint.ErrFull) {
		t.Errorf("error %v", err)
	}
	if got, err := d.LoadRecord("a"); err != nil || string(got) != "small" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestDamagedRecords checks that a record that was truncated, changed or copied from another place
// is rejected, and that encrypted ones contain no plain text.
func TestDamagedRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := open(t, state.Options{Dir: dir, Key: key})
	for name, content := range map[string]string{"a": "who may do what", "b": "who may do more"} {
		if err := d.SaveRecord(t.Context(), name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "a.record")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || bytes.Contains(whole, []byte("who")) {
		t.Errorf("%v, %v: %q", info.Mode(), err, whole)
	}
	for i := range whole {
		for _, damaged := range [][]byte{whole[:i], bytes.Clone(whole)} {
			if len(damaged) == len(whole) {
				damaged[i] ^= 1
			}
			if err := os.WriteFile(file, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := d.LoadRecord("a"); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("damaged at %d: %q, %v", i, got, err)
			}
		}
	}
}

// TestRecordsOfOthers checks that a record of another name or cluster is rejected although the key
// is the same.
func TestRecordsOfOthers(t *testing.T) {
	for _, k := range [][]byte{key, nil} {
		mem := vfs.NewMem()
		save := func(cluster, name, content string) {
			d := open(t, state.Options{FS: mem, Dir: "/" + cluster, Cluster: cluster, Key: k})
			if err := errors.Join(d.SaveRecord(t.Context(), name, []byte(content)), d.Close()); err != nil {
				t.Fatal(err)
			}
		}
		save("one", "words", "of one")
		save("one", "else", "else")
		save("two", "words", "of two")
		for from, to := range map[string]string{"/two/words.record": "/one/words.record", "/one/else.record": "/two/words.record"} {
			if err := vfs.Copy(mem, from, to); err != nil {
				t.Fatal(err)
			}
		}
		for _, cluster := range []string{"one", "two"} {
			d := open(t, state.Options{FS: mem, Dir: "/" + cluster, Cluster: cluster, Key: k})
			if got, err := d.LoadRecord("words"); !errors.Is(err, state.ErrDamaged) {
				t.Errorf("%s: %q, %v", cluster, got, err)
			}
		}
	}
}
