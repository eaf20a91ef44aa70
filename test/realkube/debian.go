package realkube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrCannotInstall says that nothing can be installed on this machine: by this user, or because it is no Debian or Ubuntu.
var ErrCannotInstall = errors.New("packages cannot be installed here")

// Installed makes sure that a program is there, by installing the package of Debian or Ubuntu that has it, and returns
// its path.
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
	// The lists of packages may be missing or old; they are fetched only if need be.
	_ = exec.CommandContext(ctx, "apt-get", "update").Run() // what it did not do, the next line tells
	return install()
}
