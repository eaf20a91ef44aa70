package envtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrNoKubectl is returned by FillAssets if the folder has no kubectl.
var ErrNoKubectl = errors.New("no kubectl found: envtest needs it only for tests that call kubectl; install it, or build bin/kubectl with make kubectl, and repeat the command")

// FillAssets links kube-apiserver and etcd in dir to program, and adds the kubectl beside program or on
// PATH. It replaces links and its own copies only. A program of go run, which does not last, is an error. On ErrNoKubectl, everything but kubectl is in place.
func FillAssets(dir, program string) error {
	if isOfGoRun(program) {
		return errors.New("the program of go run does not last; build the program first: go build -tags http2legacy ./cmd/kubeweir")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := linkOrCopy(filepath.Join(dir, name+suffix()), program); err != nil {
			return err
		}
	}
	kubectl, err := findKubectl(dir, program)
	if err != nil {
		return err
	}
	return linkOrCopy(filepath.Join(dir, "kubectl"+suffix()), kubectl)
}

// isOfGoRun reports whether a program is in a temporary folder of go run, as in go-build123/b001/exe, or in
// Go's build cache.
func isOfGoRun(program string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(filepath.Dir(program)), "/"), func(folder string) bool {
		rest, found := strings.CutPrefix(folder, "go-build")
		return found && strings.Trim(rest, "0123456789") == ""
	})
}

func suffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// findKubectl returns the absolute path of a kubectl outside dir.
func findKubectl(dir, program string) (string, error) {
	beside := filepath.Join(filepath.Dir(program), "kubectl"+suffix())
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath("kubectl")
	if err != nil {
		return "", ErrNoKubectl
	}
	if found, err = filepath.Abs(found); err != nil {
		return "", err
	}
	if filepath.Dir(found) == dir {
		return "", ErrNoKubectl
	}
	return found, nil
}

// linkOrCopy links name to program, or copies it where there are no links.
func linkOrCopy(name, program string) error {
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && runtime.GOOS != "windows" {
		return fmt.Errorf("%s exists and is not a link; choose another folder", name)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if runtime.GOOS != "windows" {
		return os.Symlink(program, name)
	}
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", program, err), out.Close())
	}
	return out.Close()
}
