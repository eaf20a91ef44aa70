//go:build linux

// Package kubelet tests installations as users make them: a real kubelet runs the pods of the Helm
// chart and of the kustomize folders, with the project's image, against a real kube-apiserver with
// the controllers and the scheduler of Kubernetes. Only the container runtime (package cri) is made
// for the tests.
//
// Everything runs in separate namespaces with only a loopback interface: commands run as they are
// written, with their ports, whatever else uses this machine. That needs root; where namespaces are
// not permitted, the tests are skipped.
package kubelet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/deploy/kubelet/cri"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// Set by TestMain and never changed.
var (
	kube    *realkube.Cluster
	engine  *cri.Runtime
	node    *realkube.Kubelet
	clients kubernetes.Interface // with the administrator's credentials
	helm    string               // path
	root    string               // of the repository

	// cannot is why the tests cannot run on this machine, or nil.
	cannot error
)

// The images that pods use.
const (
	ourImage     = "ghcr.io/kubeweir/kubeweir:v0.1.0"
	kubectlImage = "registry.k8s.io/kubectl:v1.37.2"
)

func TestMain(m *testing.M) {
	cri.Init()
	if !cri.Isolated() {
		code, err := isolate()
		switch {
		case errors.Is(err, cri.ErrCannotIsolate) || errors.Is(err, realkube.ErrCannotInstall):
			cannot = err
			code = m.Run() // needNode skips the tests
		case err != nil:
			fmt.Fprintln(os.Stderr, "kubelet:", err)
			code = 1
		}
		os.Exit(code)
	}
	if err := cri.PrepareIsolated(); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet: the tests' own machine:", err)
		os.Exit(1)
	}
	testbed.Run(m, testbed.Options{Kube: realkube.Options{Nodes: true}, Prepare: prepare})
}

// isolate builds everything, which may need the network, and runs the tests without a network.
func isolate() (code int, err error) {
	flag.Parse()
	if err := cri.CanIsolate(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), realkube.StartTime)
	defer cancel()
	if err := build(ctx); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "kubeweir-kubelet-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // the mounts vanish with the namespace
	return cri.Isolate(dir)
}

func build(ctx context.Context) error {
	if _, err := realkube.Installed(ctx, "openssl", "openssl"); err != nil {
		return err
	}
	if _, err := realkube.Binaries(ctx); err != nil {
		return err
	}
	if _, err := realkube.BuildKubelet(ctx); err != nil {
		return err
	}
	if _, err := realkube.BuildControllers(ctx); err != nil {
		return err
	}
	if _, err := buildHelm(ctx); err != nil {
		return err
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "make", "-s", "-C", root, "OUT="+filepath.Join(root, ".cache", "image"), "PLATFORMS=linux/"+runtime.GOARCH,
		"VERSION=v0.1.0", "COMMIT=0123456789abcdef0123456789abcdef01234567", "SOURCE_DATE_EPOCH=1750000000", "PUSH=", "image")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make image: %w\n%s", err, out)
	}
	return nil
}

func buildHelm(ctx context.Context) (string, error) {
	return realkube.Tool(ctx, "helm4", realkube.Tools["helm4"])
}

// prepare starts the node and the controllers.
func prepare(ctx context.Context, b *testbed.Testbed) (err error) {
	kube = b.Kube
	if root, err = realkube.RepoRoot(); err != nil {
		return err
	}
	if helm, err = buildHelm(ctx); err != nil {
		return err
	}
	if clients, err = kubernetes.NewForConfig(kube.AdminConfig()); err != nil {
		return err
	}
	dir := func(name string) string {
		path := filepath.Join(b.Dir, name)
		err = errors.Join(err, os.MkdirAll(path, 0o755))
		return path
	}
	engineDir, images, kubeletDir, controllersDir := dir("engine"), dir("images"), dir("kubelet"), dir("controllers")
	if err != nil {
		return err
	}
	// The users of the containers must be able to traverse it to their files.
	if err := os.Chmod(b.Dir, 0o755); err != nil {
		return err
	}
	ours, err := cri.Unpack(filepath.Join(root, ".cache", "image", "kubeweir_0.1.0_linux_"+runtime.GOARCH+".image.tar"), filepath.Join(images, "kubeweir"))
	if err != nil {
		return err
	}
	kubectl, err := programImage(ctx, filepath.Join(images, "kubectl"))
	if err != nil {
		return err
	}
	engine, err = cri.Start(cri.Options{Dir: engineDir,
		Images:   map[string]*cri.Image{ourImage: ours, kubectlImage: kubectl},
		Services: map[string]string{realkube.KubernetesService + ":443": kube.URL()[len("https://"):]}})
	if err != nil {
		return err
	}
	if node, err = realkube.StartKubelet(ctx, kube, realkube.KubeletOptions{Runtime: engine.Endpoint(), Dir: kubeletDir}); err != nil {
		return err
	}
	admin := filepath.Join(controllersDir, "kubeconfig")
	if err := kube.WriteKubeconfig(admin, kube.URL(), kube.ServingCAFile(), kube.AdminToken()); err != nil {
		return err
	}
	_, err = realkube.StartControllers(ctx, realkube.ControllerOptions{Kubeconfig: admin, Dir: controllersDir, NoKwok: true,
		ServiceAccountKey: kube.ServiceAccountKeyFile(), RootCA: kube.ServingCAFile()})
	return err
}

// programImage is the image registry.k8s.io/kubectl: only the program.
func programImage(ctx context.Context, dir string) (*cri.Image, error) {
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(paths.Kubectl)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	return &cri.Image{Root: dir, Entrypoint: []string{"/bin/kubectl"}}, os.WriteFile(filepath.Join(bin, "kubectl"), program, 0o755)
}

// needNode skips a test on machines that cannot run a node.
func needNode(t *testing.T) {
	t.Helper()
	if cannot != nil {
		t.Skip(cannot)
	}
}
