//go:build linux

package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkName is the program's name (os.Args[0]) in a process that checks whether isolation works.
const checkName = "isolation-check"

// namespaces are the namespaces of an isolated process.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET

// cannotIsolate is the exit code of a process that was not permitted to isolate itself.
const cannotIsolate = 77

// ErrCannotIsolate means that this machine does not permit namespaces, for example without root or
// in an unprivileged container.
var ErrCannotIsolate = errors.New("namespaces are not permitted on this machine")

// CanIsolate checks whether Isolate and PrepareIsolated can work. If the machine does not permit
// it, the error is ErrCannotIsolate.
func CanIsolate() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{checkName}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && (rejected(err) || errors.As(err, &exit) && exit.ExitCode() == cannotIsolate) {
		return fmt.Errorf("%w: %w %s", ErrCannotIsolate, err, out)
	}
	if err != nil {
		return fmt.Errorf("create namespaces: %w\n%s", err, out)
	}
	return nil
}

// check runs in the process that CanIsolate starts.
func check() {
	err := PrepareIsolated()
	if err == nil {
		var kmsg *os.File
		if kmsg, err = os.Open("/dev/kmsg"); err == nil { // the kubelet reads it to detect OOM kills
			err = kmsg.Close()
		}
	}
	switch {
	case rejected(err):
		fmt.Print(err)
		os.Exit(cannotIsolate)
	case err != nil:
		fmt.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rejected reports whether an error is due to missing permissions or a missing kernel feature.
func rejected(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist)
}

// Isolated reports whether Isolate has started this process.
func Isolated() bool { return os.Getenv(isolated) != "" }

const isolated = "KUBEWEIR_TEST_ISOLATED"

// Isolate runs this program again in new namespaces (mounts, processes, network) and returns its
// exit code. Its mounts, processes and listeners vanish with it, and it cannot reach the network.
// dir is for its temporary files. Isolate needs root.
func Isolate(dir string) (code int, err error) {
	runtime.LockOSThread() // the child is killed when the thread that started it ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolated+"=1", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT) // `go test` requests stack traces with SIGQUIT
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("create namespaces: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-done:
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				return 0, err
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

// settings are the kernel settings that a kubelet would change. In the namespace it reads the
// values it wants, and the machine's settings stay unchanged.
var settings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// PrepareIsolated sets up new namespaces like a node's machine: its own view of processes, kernel
// settings that cannot be changed, a loopback interface, and private log folders.
func PrepareIsolated() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"/proc/sys", "/proc/sys", "", unix.MS_BIND},
		{"", "/proc/sys", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{"tmpfs", "/var/log", "tmpfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for name, value := range settings {
		file := filepath.Join("/var/log", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return loopbackUp()
}
