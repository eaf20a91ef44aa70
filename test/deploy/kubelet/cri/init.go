//go:build linux

package cri

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is the program's name (os.Args[0]) in a process that becomes a container.
const initName = "container-init"

// orders are the instructions for a process that becomes a container.
type orders struct {
	Root, Image          string // an empty folder, and one with the image's files
	Hostname, WorkingDir string
	Mounts               []mount
	ReadOnly, NoNewPrivs bool
	UID, GID             int64
	Groups               []int64
	Args, Env            []string
}

type mount struct {
	From, To string
	ReadOnly bool
}

// Init turns a process that a Runtime has started into a container, or runs the check that
// CanIsolate has started. In other processes it returns. TestMain must call it first.
func Init() {
	switch os.Args[0] {
	case checkName:
		check()
	case initName:
	default:
		return
	}
	runtime.LockOSThread() // capabilities belong to the thread that executes the program
	failures := os.NewFile(3, "failures")
	unix.CloseOnExec(3)
	var o orders
	err := json.Unmarshal([]byte(os.Args[1]), &o)
	if err == nil {
		err = o.follow()
	}
	_, _ = fmt.Fprint(failures, err)
	os.Exit(1)
}

// follow returns only if it fails.
func (o *orders) follow() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, step := range []func() error{o.files, o.system, o.mounts, o.enter, o.rights} {
		if err := step(); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(o.Args[0])
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	return fmt.Errorf("exec: %s: %w", path, syscall.Exec(path, o.Args, o.Env))
}

// files bind-mounts each file of the image into the root.
func (o *orders) files() error {
	if err := unix.Mount("tmpfs", o.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return filepath.WalkDir(o.Image, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(o.Root, path[len(o.Image):])
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return bind(path, to, true)
		}
		if err := os.MkdirAll(to, info.Mode().Perm()); err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		return os.Chown(to, int(owner.Uid), int(owner.Gid))
	})
}

// system mounts proc and dev.
func (o *orders) system() error {
	for _, name := range []string{"proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(o.Root, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", filepath.Join(o.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(o.Root, "dev"), "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755"); err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind(filepath.Join("/dev", device), filepath.Join(o.Root, "dev", device), false); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte(o.Hostname))
}

func (o *orders) mounts() error {
	for _, m := range o.Mounts {
		if err := bind(m.From, filepath.Join(o.Root, m.To), m.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or a folder and creates its mount point.
func bind(from, to string, readOnly bool) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(to, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("mount point %s: %w", to, err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount %s read-only: %w", to, err)
	}
	return nil
}

// enter makes Root the root directory.
func (o *orders) enter() error {
	if err := os.Chdir(o.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is then mounted above the new one
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("the old root: %w", err)
	}
	if o.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	return os.Chdir(o.WorkingDir)
}

// rights drops all rights but those of the user.
func (o *orders) rights() error {
	groups := make([]int, 0, len(o.Groups))
	for _, g := range o.Groups {
		groups = append(groups, int(g))
	}
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	if err := syscall.Setgid(int(o.GID)); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	if err := syscall.Setuid(int(o.UID)); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	if o.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	return nil
}
