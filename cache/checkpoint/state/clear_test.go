package state_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
)

// TestClearOthers checks that exactly the state of clusters that are no longer served is removed
// from a parent directory.
func TestClearOthers(t *testing.T) {
	parent := t.TempDir()
	folder := func(name, cluster string) *state.Dir {
		d := open(t, state.Options{Dir: filepath.Join(parent, name), Cluster: cluster})
		w, err := d.Create(t.Context(), "pods", []byte("header"))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(t.Context(), []byte("1")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	closed := func(d *state.Dir) {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closed(folder("gone", "gone"))
	closed(folder("served", "served"))
	closed(folder("alone", ""))      // of a gateway with one cluster
	closed(folder("named", "other")) // not named after its cluster
	closed(folder("mixed", "mixed"))
	busy := folder("busy", "busy")
	defer busy.Close()
	for name, content := range map[string]string{"mixed/notes.txt": "mine", "photo.image": "mine", "folder/kubeweir-state": "no JSON"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(parent, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	state.ClearOthers(parent, []string{filepath.Join(parent, "served") + "/"}, slog.New(slog.NewTextHandler(&log, nil)))
	var left []string
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"alone", "busy", "folder", "mixed", "named", "photo.image", "served"}; !slices.Equal(left, want) {
		t.Errorf("remaining files %v, want %v", left, want)
	}
	for _, name := range []string{"alone", "mixed", "named", "served", "busy"} {
		if _, err := os.Stat(filepath.Join(parent, name, "pods.image")); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"gone", "notes.txt"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("no log line about %s: %s", want, log.String())
		}
	}
	state.ClearOthers(filepath.Join(parent, "none"), nil, quiet())
}

// TestClear checks that the state of a cluster is removed from a directory that it alone used, that
// the directory stays, and that another cluster's state is kept.
func TestClear(t *testing.T) {
	parent := t.TempDir()
	for name, tc := range map[string]struct {
		cluster string
		foreign bool
		busy    bool
		left    []string
	}{
		"its":                {cluster: "berlin"},
		"another cluster's":  {cluster: "lab", left: []string{"kubeweir-state", "lock"}},
		"of one alone":       {left: []string{"kubeweir-state", "lock"}},
		"with other files":   {cluster: "berlin", foreign: true, left: []string{"kubeweir-state", "lock", "notes.txt"}},
		"used by some other": {cluster: "berlin", busy: true, left: []string{"kubeweir-state", "lock"}},
	} {
		path := filepath.Join(parent, name)
		d := open(t, state.Options{Dir: path, Cluster: tc.cluster})
		if tc.foreign {
			if err := os.WriteFile(filepath.Join(path, "notes.txt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !tc.busy {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		state.Clear(path, "berlin", quiet())
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Error(err)
		}
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, tc.left) {
			t.Errorf("%s: remaining files %v, want %v", name, left, tc.left)
		}
		if tc.busy {
			_ = d.Close()
		}
	}
	state.Clear(filepath.Join(parent, "none"), "berlin", quiet())
	if _, err := os.Stat(filepath.Join(parent, "none")); err == nil {
		t.Error("a directory was created")
	}
}

// TestHandOver checks that a directory has one owner, and that a closed Dir neither reads, writes nor
// clears it.
func TestHandOver(t *testing.T) {
	options := state.Options{Dir: t.TempDir(), Logger: quiet()}
	first := open(t, options)
	w, err := first.Create(t.Context(), "pods", []byte("header"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	unused := func(d *state.Dir) {
		t.Helper()
		names, err := d.Names()
		if len(names) > 0 || err != nil {
			t.Errorf("files %v, error %v", names, err)
		}
		if _, err := d.Open("pods"); err == nil {
			t.Error("the directory was read")
		}
		if _, err := d.Create(t.Context(), "pods", nil); err == nil {
			t.Error("the directory was written")
		}
		if err := d.Remove("pods"); err != nil {
			t.Error(err)
		}
	}
	if _, err := state.Open(options); !errors.Is(err, state.ErrInUse) {
		t.Errorf("two Dirs own the directory: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, options)
	unused(first)
	if names, err := second.Names(); len(names) != 1 || err != nil {
		t.Errorf("%v, %v", names, err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}
