package monitoring

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/deploy/monitoring"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestAlertsAreValid checks the rules with promtool.
func TestAlertsAreValid(t *testing.T) {
	promtool(t, "check", "rules", alertsFile(t))
}

// TestDashboardExpressions checks with promtool that the dashboard's expressions are valid.
func TestDashboardExpressions(t *testing.T) {
	queries := dashboardQueries(t)
	type recording struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []recording
	for i, q := range queries {
		rules = append(rules, recording{fmt.Sprintf("kubeweir:query_%d", i), monitoring.Concrete(q)})
	}
	b, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// promtool runs promtool and fails the test if it fails.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path := promtoolPath(t)
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// promtoolPath returns the path of promtool. It skips the test if promtool is not installed and
// cannot be downloaded.
func promtoolPath(t *testing.T) string {
	t.Helper()
	path, err := installed()
	if errors.Is(err, realkube.ErrCannotInstall) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// installed returns the path of an installed promtool, or of that in Debian's package prometheus.
// It unpacks the package into .cache instead of installing it, because the package starts a
// service.
func installed() (string, error) {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path, nil
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "promtool")
	path := filepath.Join(dir, "usr", "bin", "promtool")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("promtool is needed: %w: there is no apt-get", realkube.ErrCannotInstall)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "promtool-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	// The package lists may be missing or outdated; update them only if the download fails.
	script := `(apt-get download -q prometheus || (apt-get update -q && apt-get download -q prometheus)) && ` +
		`dpkg-deb -x prometheus_*.deb . && rm -rf prometheus_*.deb usr/bin/prometheus etc lib`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("promtool is needed (Debian's package prometheus), and cannot be fetched: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return path, nil
}

func alertsFile(t *testing.T) string {
	t.Helper()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy", "monitoring", "alerts.yaml")
}

// dashboardQueries returns the expressions of the dashboard.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(alertsFile(t)), "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	queries, err := monitoring.Queries(b)
	if err != nil {
		t.Fatal(err)
	}
	return queries
}

func rules(t *testing.T) []monitoring.Rule {
	t.Helper()
	b, err := os.ReadFile(alertsFile(t))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.Rules(b)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}
