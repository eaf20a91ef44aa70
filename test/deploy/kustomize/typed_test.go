package kustomize

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

var (
	shell = regexp.MustCompile("(?s)```sh\n(.*?)```")
	// beyond matches commands that need a kubelet, a port that only a kubelet forwards, or GitHub.
	beyond = regexp.MustCompile(`(?m)^kubectl .*(port-forward|--server https://127\.0\.0\.1|https://github\.com).*$`)
)

// TestREADMECommands runs the README's commands in their order in a copy of the repository.
func TestREADMECommands(t *testing.T) {
	testbed.Installed(t, "openssl", "openssl")
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))
	started, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	api, err := realkube.StartStandalone(started, realkube.StandaloneOptions{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(api.Close)
	paths, err := realkube.Binaries(t.Context())
	must(t, err)
	enter := func(script string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-e", "-u", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"), "KUBECONFIG="+api.Kubeconfig(), "KUBECACHEDIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s\n%v\n%s", script, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", "README.md"))
	must(t, err)
	var folders, typed int
	for _, block := range shell.FindAllStringSubmatch(string(text), -1) {
		script := beyond.ReplaceAllString(block[1], "")
		folders += strings.Count(script, "kubectl apply -k deploy/kustomize/")
		switch {
		case strings.TrimSpace(script) == "":
			continue
		case strings.Contains(script, "\nopenssl "):
			// front was applied before, so its namespace exists.
			enter(strings.ReplaceAll(script, "kubectl create namespace $ns", "kubectl get namespace $ns"))
			certified(t, dir, "kubeweir.kubeweir.svc")
			enter(strings.ReplaceAll(script, "ns=kubeweir ", "ns=kubeweir-standalone "))
			certified(t, dir, "kubeweir.kubeweir-standalone.svc")
		case strings.Contains(script, "kubectl create token NAME"):
			enter(strings.ReplaceAll(script, "kubectl create token NAME", "kubectl create serviceaccount viewer; kubectl create token viewer"))
		default:
			enter(script)
		}
		typed++
	}
	if folders != 3 || typed < 4 {
		t.Errorf("%d folders were applied in %d blocks", folders, typed)
	}
	for _, inline := range []string{
		"kubectl create configmap kubeweir-ca --from-file ca.crt",
		"kubectl -n kubeweir-standalone rollout restart statefulset kubeweir",
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), "`"+inline+"`") {
			t.Errorf("the README does not say %s", inline)
		}
		enter(inline)
	}
}

// certified checks that the files that openssl made are a certificate for a name.
func certified(t *testing.T, dir, name string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
		t.Error(err)
	}
}

var fileBlock = regexp.MustCompile("(?s)```yaml\n# ([a-z]+\\.yaml)\n(.*?)```")

// TestSidecarPage builds the example of docs/sidecar.md: both containers reach the gateway, whose
// image has a tag.
func TestSidecarPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "sidecar.md"))
	must(t, err)
	files := map[string]string{}
	for _, file := range fileBlock.FindAllStringSubmatch(string(text), -1) {
		files[file[1]] = strings.ReplaceAll(file[2], "https://github.com/kubeweir/kubeweir//deploy/kustomize/components/sidecar?ref=v0.1.0", "DEPLOY/components/sidecar")
	}
	if len(files) != 2 || !strings.Contains(files["kustomization.yaml"], "DEPLOY/") {
		t.Fatalf("the page has %q", files)
	}
	spec := podTemplate(t, overlay(deadline(t), t, files)).Spec
	if image := spec.InitContainers[0].Image; image != "ghcr.io/kubeweir/kubeweir:v0.1.0" {
		t.Errorf("the image of the gateway is %s", image)
	}
	for _, c := range spec.Containers {
		env := make(map[string]string)
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == serviceAccountFolder && m.Name == "kubeweir-service-account"
		})
		if env["KUBERNETES_SERVICE_HOST"] != "127.0.0.1" || env["KUBERNETES_SERVICE_PORT"] != "19443" || !mounted {
			t.Errorf("%+v", c)
		}
	}
}
