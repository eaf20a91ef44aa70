package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
)

// TestRights: the roles are those that the settings need, as `kubeweir rbac` prints them.
func TestRights(t *testing.T) {
	for folder, names := range map[string]rbac.Names{
		"components/gateway": rbac.DefaultNames(),
		"dashboard":          {Role: "kubeweir-dashboard", ServiceAccount: "headlamp", Namespace: "kubeweir-dashboard"},
	} {
		dir := filepath.Join(root, "deploy", "kustomize", folder)
		text, err := os.ReadFile(filepath.Join(dir, "gateway.yaml"))
		must(t, err)
		// The files of the pod are not here.
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
			t.Errorf("%s is not what `kubeweir rbac` prints (%v); go test ./test/deploy/kustomize -run TestRights -update writes it", path, err)
		}
	}
}
