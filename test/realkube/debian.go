package realkube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrCannotInstall means that packages cannot be installed on this machine: the user is not root,
// or it is neither Debian nor Ubuntu.
var ErrCannotInstall = errors.New("packages cannot be installed here")

// Installed returns the path of a program. If it is missing, Installed installs its Debian or
// Ubuntu package.
func Installed(ctx context.Context, program, pkg string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	if err := Install(ctx, pkg); err != nil {
		return "", fmt.Errorf("%s is needed: %w", program, err)
	}
	return exec.LookPath(program)
}

// Install installs a package of Debian or Ubuntu.
func Install(ctx context.Context, pkg string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install the package %s: %w: there is no apt-get", pkg, ErrCannotInstall)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("install the package %s: %w: only root may", pkg, ErrCannotInstall)
	}
	unlock, err := lockFile(ctx, filepath.Join(os.TempDir(), "kubeweir-apt.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	install := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", pkg)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install the package %s: %w\n%s", pkg, err, out)
		}
		return nil
	}
	if install() == nil {
		return nil
	}
	// The package lists may be missing or outdated; update them only if the installation fails.
	_ = exec.CommandContext(ctx, "apt-get", "update").Run() // the second installation reports what is missing
	return install()
}
