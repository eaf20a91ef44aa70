package realkube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartTime bounds the start of any server in this package, including the first build of all
// programs.
const StartTime = 25 * time.Minute

// modulePath is the module path in the go.mod at the root of this repository.
const modulePath = "github.com/kubeweir/kubeweir"

// Paths are the absolute paths of a cluster's programs.
type Paths struct {
	Etcd          string
	KubeAPIServer string
	Kubectl       string
}

// Binaries returns etcd, kube-apiserver and kubectl, built from the modules that this repository's
// go.mod names as `tool` directives. They are built once into .cache/bin at the repository's root,
// and again only when go.mod or the Go version changes. Concurrent callers, in this process or
// another, wait for a single build.
func Binaries(ctx context.Context) (Paths, error) {
	var p Paths
	dir, err := buildModules(ctx, "cluster", []string{"etcd", "kube-apiserver", "kubectl"}, func(root, dir, ldflags string) error {
		if err := goBuild(ctx, root, dir, ldflags, "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kubectl"); err != nil {
			return err
		}
		return goBuild(ctx, root, filepath.Join(dir, "etcd"), "-s -w", "go.etcd.io/etcd/server/v3")
	})
	if err == nil {
		p = Paths{
			Etcd:          filepath.Join(dir, "etcd"),
			KubeAPIServer: filepath.Join(dir, "kube-apiserver"),
			Kubectl:       filepath.Join(dir, "kubectl"),
		}
	}
	return p, err
}

// buildModules builds programs of modules in go.mod into .cache/bin and returns that folder. It
// does nothing if the programs exist and go.mod and the Go version have not changed. name is the
// name of the lock and the stamp.
func buildModules(ctx context.Context, name string, programs []string, build func(root, dir, ldflags string) error) (dir string, err error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", "bin")
	unlock, err := lockFile(ctx, filepath.Join(dir, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	kube, err := requiredVersion(goMod, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	ldflags := kubeLDFlags(kube)
	stampFile, stamp := filepath.Join(dir, name+".stamp"), stampOf(goMod, ldflags)
	paths := make([]string, len(programs))
	for i, program := range programs {
		paths[i] = filepath.Join(dir, program)
	}
	if old, err := os.ReadFile(stampFile); err == nil && string(old) == stamp && allExist(paths...) {
		return dir, nil
	}
	// go build checks what exists and links only programs that have changed.
	if err := build(root, dir+string(filepath.Separator), ldflags); err != nil {
		return "", err
	}
	return dir, os.WriteFile(stampFile, []byte(stamp), 0o644)
}

// RepoRoot returns the folder of the go.mod that contains the working directory, which must be
// kubeweir's.
func RepoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module "+modulePath+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("realkube: the working directory is not inside the kubeweir repository")
		}
		dir = parent
	}
}

// built is the program built by Kubeweir. Its sources do not change while a test runs.
var built struct {
	sync.Mutex
	path string
}

// Kubeweir returns the path of the kubeweir program: KUBEWEIR_BINARY of the environment, or
// cmd/kubeweir built into .cache/bin. go build decides what is stale, once per process.
func Kubeweir(ctx context.Context) (string, error) {
	if path := os.Getenv("KUBEWEIR_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	built.Lock()
	defer built.Unlock()
	if built.path != "" {
		return built.path, nil
	}
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "bin")
	unlock, err := lockFile(ctx, filepath.Join(dir, "gateway.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	out := filepath.Join(dir, "kubeweir")
	if err := goBuild(ctx, root, out, "-s -w", "./cmd/kubeweir"); err != nil {
		return "", err
	}
	built.path = out
	return out, nil
}

func goBuild(ctx context.Context, root, out, ldflags string, pkgs ...string) error {
	args := append([]string{"build", "-o", out, "-ldflags", ldflags}, pkgs...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// Static, as in the Makefile: test/deploy/kubelet runs kubectl in an image without libraries.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, b)
	}
	return nil
}

// kubeLDFlags sets a kube-apiserver's version as in a release build. Without it, /version says
// v0.0.0 and the emulated version is wrong.
func kubeLDFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const pkg = "k8s.io/component-base/version."
	return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s",
		pkg, version, pkg, parts[0], pkg, parts[1])
}

func stampOf(goMod []byte, ldflags string) string {
	h := sha256.New()
	h.Write(goMod)
	fmt.Fprintf(h, "\x00%s\x00%s\x00static", ldflags, runtime.Version())
	return hex.EncodeToString(h.Sum(nil))
}

// requiredVersion returns a module's version from the require lines of a go.mod.
func requiredVersion(goMod []byte, module string) (string, error) {
	for line := range strings.Lines(string(goMod)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == module && strings.Count(f[1], ".") >= 2 {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("realkube: go.mod does not require %s", module)
}

func allExist(paths ...string) bool {
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			return false
		}
	}
	return true
}

// lockFile takes an exclusive lock on path, which it creates, and returns the function that
// releases it. The kernel releases the lock when the holder dies.
func lockFile(ctx context.Context, path string) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err := pause(ctx); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("waiting for %s: %w", path, err)
		}
	}
}
