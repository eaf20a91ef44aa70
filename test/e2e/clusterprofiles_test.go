package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// aFleet is a hub, a kube-apiserver with ClusterProfiles written by kubectl, and the gateway's
// kubeconfig for kubectl.
type aFleet struct {
	t       *testing.T
	kubectl *kubectl
	clients string // kubeconfig of all clusters of the gateway
}

// onHub runs kubectl at the hub.
func (f *aFleet) onHub(ctx context.Context, args ...string) {
	f.t.Helper()
	if out, err := f.kubectl.command(ctx, f.kubectl.configs[0], args...).CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// add creates a ClusterProfile of a standalone server.
func (f *aFleet) add(ctx context.Context, name string, lab *realkube.Standalone) {
	f.t.Helper()
	ca, err := os.ReadFile(kube.ServingCAFile())
	must(f.t, err)
	f.onHub(ctx, "apply", "-f", writeFile(f.t, name+".yaml", fmt.Sprintf(
		"{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ClusterProfile, metadata: {name: %s, namespace: fleet}, spec: {clusterManager: {name: e2e}}}", name)))
	f.onHub(ctx, "patch", "clusterprofile", name, "-n", "fleet", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status": {"accessProviders": [{"name": "token", "cluster": {"server": %q, "certificate-authority-data": %q}}]}}`, lab.URL(), base64.StdEncoding.EncodeToString(ca)))
}

// through runs kubectl with a cluster of the gateway until its output contains a text.
func (f *aFleet) through(ctx context.Context, cluster, want string, args ...string) {
	f.t.Helper()
	eventually(ctx, f.t, 30*time.Second, func() error {
		out, err := f.kubectl.command(ctx, f.clients, append([]string{"--context", cluster}, args...)...).CombinedOutput()
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("%s: %v: %v\n%s", cluster, args, err, out)
		}
		return nil
	})
}

// TestClusterProfiles checks that kubectl reaches two standalone servers named by ClusterProfiles
// of a hub, next to a cluster of the configuration, and no longer reaches one whose profile is
// deleted.
func TestClusterProfiles(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	first, _ := startLab(t)
	second, _ := startLab(t)
	dir := t.TempDir()
	hub := filepath.Join(dir, "hub.kubeconfig")
	must(t, kube.WriteKubeconfig(hub, kube.URL(), kube.ServingCAFile(), kube.AdminToken()))
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(kube.AdminToken()), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "providers.json"), fmt.Appendf(nil, `{"providers": [{"name": "token", "execConfig": {
		"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [%q], "env": null, "provideClusterInfo": true}}]}`,
		fmt.Sprintf(`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": %q}}`, kube.AdminToken())), 0o600))
	file := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte("clusters: [{name: real}]\nclusterProfiles: {providerFile: providers.json, kubeconfig: hub.kubeconfig, namespace: fleet}\n"), 0o600))

	createNamespaces(ctx, t, "fleet")
	g := startGateway(t, "--config", file) // before the hub has the definition of ClusterProfiles
	f := &aFleet{t: t, kubectl: newKubectl(ctx, t, g), clients: filepath.Join(dir, "clients")}
	f.onHub(ctx, "apply", "-f", "testdata/clusterprofiles.yaml")
	t.Cleanup(func() {
		f.onHub(context.WithoutCancel(ctx), "delete", "-f", "testdata/clusterprofiles.yaml")
	})
	f.onHub(ctx, "wait", "--for=condition=Established", "crd/clusterprofiles.multicluster.x-k8s.io")
	f.add(ctx, "first", first)
	f.add(ctx, "second", second)
	out, err := exec.CommandContext(ctx, bed.Program, "kubeconfig", "--config", file, "--server", g.URL(),
		"--certificate-authority", kube.ServingCAFile(), "--token-file", filepath.Join(dir, "token"), "-o", f.clients).CombinedOutput()
	if err != nil {
		t.Fatalf("kubeweir kubeconfig: %v\n%s", err, out)
	}
	for _, cluster := range []string{"first", "second", "real"} {
		f.through(ctx, cluster, "namespace/default", "get", "namespaces", "-o", "name")
	}
	f.through(ctx, "first", "created", "create", "configmap", "of-first", "-n", "default")
	f.through(ctx, "first", "of-first", "get", "configmaps", "-n", "default")
	if out, _ := f.kubectl.command(ctx, f.clients, "--context", "second", "get", "configmap", "of-first", "-n", "default").CombinedOutput(); !strings.Contains(string(out), "not found") {
		t.Errorf("the object of cluster first is in cluster second: %s", out)
	}
	f.onHub(ctx, "delete", "clusterprofile", "second", "-n", "fleet")
	eventually(ctx, t, 30*time.Second, func() error {
		out, err := f.kubectl.command(ctx, f.clients, "--context", "second", "get", "--raw", "/version").CombinedOutput()
		if err == nil {
			return fmt.Errorf("cluster second is still served: %s", out)
		}
		return nil
	})
	f.through(ctx, "first", "of-first", "get", "configmaps", "-n", "default")
}
