package realkube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Releases of Kubernetes, besides that of go.mod, with which kubeweir is tested. 1.30 is the oldest
// supported one.
const (
	Release130 = "1.30"
	Release133 = "1.33"
	Release136 = "1.36"
)

// KubeAPIServer returns the absolute path of another release's kube-apiserver. Its module is below
// test/tools, with the libraries of that release.
func KubeAPIServer(ctx context.Context, release string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	module := "kube-apiserver-" + release
	goMod, err := os.ReadFile(filepath.Join(root, "test", "tools", module, "go.mod"))
	if err != nil {
		return "", err
	}
	version, err := requiredVersion(goMod, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	return buildTool(ctx, module, "k8s.io/kubernetes/cmd/kube-apiserver", kubeLDFlags(version))
}

// Tools are the programs for Tool by the names of their modules.
var Tools = map[string]string{"helm3": "helm.sh/helm/v3/cmd/helm", "helm4": "helm.sh/helm/v4/cmd/helm", "chromium": ".", "kwokctl": "sigs.k8s.io/kwok/cmd/kwokctl", "etcdutl": "go.etcd.io/etcd/etcdutl/v3"}

// Tool returns the absolute path of a program of a separate module below test/tools, for example
// Tool(ctx, "helm4", "helm.sh/helm/v4/cmd/helm"). It is built once into .cache/bin at the
// repository's root, and again only when the module's files or the Go version change. Concurrent
// callers, in this process or another, wait for a single build.
func Tool(ctx context.Context, module, program string) (string, error) {
	return buildTool(ctx, module, program, "-s -w")
}

func buildTool(ctx context.Context, module, program, ldflags string) (string, error) {
	root, err := RepoRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "test", "tools", module)
	out := filepath.Join(root, ".cache", "bin", module)
	unlock, err := lockFile(ctx, out+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	stamp, err := stampOfModule(source, program)
	if err != nil {
		return "", err
	}
	old, err := os.ReadFile(out + ".stamp")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if string(old) == stamp && allExist(out) {
		return out, nil
	}
	if err := goBuild(ctx, source, out, ldflags, program); err != nil {
		return "", err
	}
	return out, os.WriteFile(out+".stamp", []byte(stamp), 0o644)
}

// stampOfModule returns a value that changes with the module's files.
func stampOfModule(source, program string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range append(files, filepath.Join(source, "go.mod")) {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		h.Write(b)
		h.Write([]byte{0})
	}
	h.Write([]byte(program + runtime.Version()))
	return hex.EncodeToString(h.Sum(nil)), nil
}
