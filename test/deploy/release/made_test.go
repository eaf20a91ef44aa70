// Package release tests that the results of `make image` and `make dist` can be installed and run.
package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// The version and the time are fixed, so that the artifacts are not rebuilt for each commit.
const (
	prefix    = "kubeweir_0.0.1-test.1_linux_amd64."
	layoutDir = "kubeweir_0.0.1-test.1_image"
)

// made builds the artifacts for one platform and returns their folder.
var made = sync.OnceValues(func() (string, error) {
	root, err := realkube.RepoRoot()
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, ".cache", "release")
	return out, makeIn(root, out, "image", "dist")
})

// makeIn builds targets of a source into a folder.
func makeIn(source, out string, targets ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"-C", source, "OUT=" + out, "PLATFORMS=linux/amd64",
		"VERSION=v0.0.1-test.1", "COMMIT=0123456789abcdef0123456789abcdef01234567", "SOURCE_DATE_EPOCH=1750000000", "PUSH="}, targets...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, b)
	}
	return nil
}

// file returns the path of a file of the release.
func file(t *testing.T, name string) string {
	t.Helper()
	dir, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// command runs a system program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// debian installs the package of a program if necessary.
func debian(t *testing.T, program, pkg string) {
	t.Helper()
	testbed.Installed(t, program, pkg)
}

// TestReproducible builds the image again from a copy of the source in another folder that is not a
// git repository.
func TestReproducible(t *testing.T) {
	first := read(t, file(t, layoutDir), "index.json")
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := copySource(root, copied); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(copied, "dist")
	if err := makeIn(copied, out, "image"); err != nil {
		t.Fatal(err)
	}
	if again := read(t, out, layoutDir, "index.json"); !bytes.Equal(first, again) {
		t.Errorf("the same source in two folders gives two images:\n%s\n%s", first, again)
	}
}

// copySource copies the source: everything but what git and make keep at the root.
func copySource(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case rel == ".":
			return nil
		case d.IsDir() && (strings.HasPrefix(rel, ".") || rel == "bin" || rel == "dist"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular() || strings.HasPrefix(rel, "."):
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another test has removed the file meanwhile
		} else if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}
