package standalone

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestGoHelper has a module of its own use package kubeweirtest, as its users do.
func TestGoHelper(t *testing.T) {
	testModule(t, "gohelper", "origin/kubeweirtest", "", []string{"KUBEWEIR_BIN=" + tools(t).kubeweir}, "go", "test", "-v", "./...")
}

// TestGoHelperInProcess has a module of its own use package origintest, with the replacements that
// docs/go-tests.md tells to copy. It links Kubernetes, which takes minutes.
func TestGoHelperInProcess(t *testing.T) {
	if !soak.Enabled() {
		t.Skip("only in a soak")
	}
	testModule(t, "origintest", ".", fromGoMod(t, `(?ms)^replace \(.*?^\)\n`), nil, "go", "test", "-v", "./...")
}

// TestOperator has a project as kubebuilder generates it test itself with kubeweir's assets. A first
// run builds controller-runtime, which takes minutes.
func TestOperator(t *testing.T) {
	if !soak.Enabled() {
		t.Skip("only in a soak")
	}
	required := "require " + fromGoMod(t, `sigs\.k8s\.io/controller-runtime v\S+`) + "\n"
	testModule(t, "operator", "", required, []string{"KUBEBUILDER_ASSETS=" + assets(t.Context(), t)}, "make", "test")
}

// fromGoMod returns what a pattern matches in the repository's go.mod.
func fromGoMod(t *testing.T, pattern string) string {
	t.Helper()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return string(regexp.MustCompile(pattern).Find(mod))
}

// testModule makes a module of a folder in testdata, with more lines in its go.mod, that requires the
// module in a folder of the repository unless that is empty, tidies it, and runs its tests.
func testModule(t *testing.T, name, required, more string, env []string, test ...string) {
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
	commands := [][]string{{"go", "mod", "tidy"}, test}
	if required != "" {
		path := strings.TrimSuffix("github.com/kubeweir/kubeweir/"+required, "/.")
		commands = slices.Insert(commands, 0, []string{"go", "mod", "edit", "-require=" + path + "@v0.1.0", "-replace=" + path + "=" + from})
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off", "GONOSUMDB=*")
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("%s\n%s", strings.Join(args, " "), out)
	}
}
