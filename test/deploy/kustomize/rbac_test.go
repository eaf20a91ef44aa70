package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
)

// TestRights checks that the roles are those that `kubeweir rbac` prints for the settings.
func TestRights(t *testing.T) {
	for folder, names := range map[string]rbac.Names{
		"components/gateway": rbac.DefaultNames(),
		"dashboard":          {Role: "kubeweir-dashboard", ServiceAccount: "headlamp", Namespace: "kubeweir-dashboard"},
	} {
		dir := filepath.Join(root, "deploy", "kustomize", folder)
		text, err := os.ReadFile(filepath.Join(dir, "gateway.yaml"))
		must(t, err)
		// The paths in the pod do not exist on this machine.
		file := filepath.Join(t.TempDir(), "gateway.yaml")
		must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "/etc/kubeweir", t.TempDir())), 0o600))
		t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
		settings, err := config.Parse([]string{"--config", file, "--tls-cert-file=", "--tls-private-key-file="})
		must(t, err)
		rules, err := rbac.Rules(settings, rbac.Options{})
		must(t, err)
		var want strings.Builder
		must(t, rbac.WriteYAML(&want, names, rules))
		path := filepath.Join(dir, "rbac.yaml")
		if *update {
			must(t, os.WriteFile(path, []byte(want.String()), 0o644))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want.String() {
			t.Errorf("%s differs from the output of `kubeweir rbac` (%v); run go test ./test/deploy/kustomize -run TestRights -update", path, err)
		}
	}
}
