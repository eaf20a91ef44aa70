package standalone

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestGoHelper has a module of its own use package kubeweirtest, as its users do.
func TestGoHelper(t *testing.T) {
	testModule(t, "gohelper", "origin/kubeweirtest", "")
}

// TestGoHelperInProcess has a module of its own use package origintest, with the replacements that
// docs/go-tests.md tells to copy. It links Kubernetes, which takes minutes.
func TestGoHelperInProcess(t *testing.T) {
	if !soak.Enabled() {
		t.Skip("only in a soak")
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	testModule(t, "origintest", ".", string(regexp.MustCompile(`(?ms)^replace \(.*?^\)\n`).Find(mod)))
}

// testModule makes a module of a folder in testdata, with more lines in its go.mod, that requires the
// module in a folder of the repository, tidies it, and runs its tests.
func testModule(t *testing.T, name, required, more string) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, from := t.TempDir(), filepath.Join(root, required)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	// With these sums no checksum database needs to be asked, which may be out of reach.
	sums, err := os.ReadFile(filepath.Join(from, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"go.mod": "module example.com/controller\n\ngo 1.26.0\n\n" + more, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.TrimSuffix("github.com/kubeweir/kubeweir/"+required, "/.")
	for _, args := range [][]string{
		{"mod", "edit", "-require=" + path + "@v0.1.0", "-replace=" + path + "=" + from},
		{"mod", "tidy"},
		{"test", "-v", "./..."},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off", "GONOSUMDB=*", "KUBEWEIR_BIN="+tools(t).kubeweir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("go %s\n%s", strings.Join(args, " "), out)
	}
}
