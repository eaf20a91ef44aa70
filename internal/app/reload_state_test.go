package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestReloadWithState: a cluster that is changed goes on with what was kept of it; what was kept of one that has gone is
// removed with the next change.
func TestReloadWithState(t *testing.T) {
	stateConfig := "state: {dir: state}\n"
	s := startSeveral(t, []string{"a", "b"}, entry("a"), entry("b"), stateConfig)
	read := func(cluster string) {
		if code, body := s.get(s.client(cluster, ""), "", "/clusters/"+cluster+"/api/v1/namespaces?resourceVersion=0"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	}
	read("a")
	read("b")
	for i := range 3 {
		if err := s.change(entry("a", fmt.Sprintf("limits: {maxColdStarts: %d}", 100+i)), entry("b"), stateConfig); err != nil {
			t.Fatal(err)
		}
		read("a")
		if n := s.count("kubeweir_state_loads_total", "a", "confirmed"); n == 0 {
			t.Errorf("change %d: nothing was loaded", i)
		}
	}
	folder := filepath.Join(s.dir, "state", "b")
	foreign := filepath.Join(s.dir, "state", "mine")
	if err := os.WriteFile(foreign, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.change(entry("a"), stateConfig); err != nil {
		t.Fatal(err)
	}
	s.several.running.Wait() // b has ended
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
	if err := s.change(entry("a", "limits: {maxColdStarts: 50}"), stateConfig); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state of b is there still: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	read("a")
}

// TestReloadWithOwnState: what was kept of a cluster in a folder that it named itself is removed when the cluster is, and
// when it names another folder, unless somebody else has put something there.
func TestReloadWithOwnState(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a", "state: {dir: of-a}"), entry("b", "state: {dir: of-b}"))
	await(t, s, "a", 200)
	files := func(folder string) (names []string) {
		entries, err := os.ReadDir(filepath.Join(s.dir, folder))
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	change := func(entries ...string) {
		t.Helper()
		if err := s.change(entries...); err != nil {
			t.Fatal(err)
		}
		s.several.running.Wait() // who has gone has ended
	}
	change(entry("a", "state: {dir: of-a}", "limits: {maxColdStarts: 50}"), entry("b", "state: {dir: of-b}"))
	if len(files("of-a")) == 0 || len(files("of-b")) == 0 {
		t.Error("what is kept of clusters that there are is gone")
	}
	change(entry("a", "state: {dir: elsewhere}"), entry("b", "state: {dir: of-b}"))
	if left := files("of-a"); len(left) > 0 {
		t.Errorf("in the folder that is used no more there are %v", left)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "of-b", "notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	change(entry("a", "state: {dir: elsewhere}"))
	if left := files("of-b"); !slices.Contains(left, "notes.txt") || len(left) < 2 {
		t.Errorf("of a folder with somebody else's file %v are left", left)
	}
	if len(files("elsewhere")) == 0 {
		t.Error("what is kept of a is gone")
	}
}

// TestReloadWithStateOfADrainingCluster: one that is removed and comes again while the watches of the old one still drain
// goes on with what was kept.
func TestReloadWithStateOfADrainingCluster(t *testing.T) {
	stateConfig := "state: {dir: state}\n"
	s := startSeveral(t, []string{"a", "b"}, entry("a"), entry("b"), stateConfig)
	s.several.drainTime = time.Hour
	s.watch("b", "&resourceVersion=0")
	for i := range 3 {
		if err := s.change(entry("a"), stateConfig); err != nil {
			t.Fatal(err)
		}
		if err := s.change(entry("a"), entry("b"), stateConfig); err != nil {
			t.Fatal(err)
		}
		s.watch("b", "&resourceVersion=0") // which the next change drains
		if n := s.count("kubeweir_state_loads_total", "b", "confirmed"); n == 0 {
			t.Errorf("time %d: nothing was loaded: %s", i, s.log.String())
		}
	}
}
