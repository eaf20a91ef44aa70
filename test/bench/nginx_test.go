package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// installedNginx returns the path of an installed nginx, or of that in Debian's package. It unpacks
// the package into .cache instead of installing it, because the package starts a service.
func installedNginx(ctx context.Context) (string, error) {
	if path := findNginx(); path != "" {
		return path, nil
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "nginx")
	path := filepath.Join(dir, "usr", "sbin", "nginx")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("nginx is needed: %w: there is no apt-get", realkube.ErrCannotInstall)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "nginx-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	// The package lists may be missing or outdated; update them only if the download fails.
	script := `(apt-get download -q nginx || (apt-get update -q && apt-get download -q nginx)) && ` +
		`dpkg-deb -x nginx_*.deb . && rm -rf nginx_*.deb etc lib var usr/share`
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("nginx is needed (Debian's package nginx), and cannot be fetched: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return path, nil
}
