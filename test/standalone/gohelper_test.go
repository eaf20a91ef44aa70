package standalone

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestGoHelper has a module of its own use package kubeweirtest, as its users do.
func TestGoHelper(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/gohelper")); err != nil {
		t.Fatal(err)
	}
	const helper = "github.com/kubeweir/kubeweir/origin/kubeweirtest"
	for _, args := range [][]string{
		{"mod", "init", "example.com/controller"},
		{"mod", "edit", "-require=" + helper + "@v0.1.0", "-replace=" + helper + "=" + filepath.Join(root, "origin", "kubeweirtest")},
		{"mod", "tidy"},
		{"test", "-v", "./..."},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off", "KUBEWEIR_BIN="+tools(t).kubeweir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("go %s\n%s", strings.Join(args, " "), out)
	}
}
