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

// checkName is what this program is called when it is to say whether it can be isolated.
const checkName = "isolation-check"

// namespaces are those that an isolated process has of its own.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET

// cannotIsolate is the exit code of who was not let.
const cannotIsolate = 77

// ErrCannotIsolate says that this machine does not let a process have namespaces of its own, as without root, or in a
// container without rights.
var ErrCannotIsolate = errors.New("there can be no namespaces here")

// CanIsolate tries whether Isolate can do what it does, and PrepareIsolated. If the machine does not let it, the error is
// ErrCannotIsolate.
func CanIsolate() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{checkName}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && (refused(err) || errors.As(err, &exit) && exit.ExitCode() == cannotIsolate) {
		return fmt.Errorf("%w: %w %s", ErrCannotIsolate, err, out)
	}
	if err != nil {
		return fmt.Errorf("namespaces of its own: %w\n%s", err, out)
	}
	return nil
}

// check is what the process of CanIsolate does.
func check() {
	err := PrepareIsolated()
	if err == nil {
		var kmsg *os.File
		if kmsg, err = os.Open("/dev/kmsg"); err == nil { // a kubelet looks there for who has no memory left
			err = kmsg.Close()
		}
	}
	switch {
	case refused(err):
		fmt.Print(err)
		os.Exit(cannotIsolate)
	case err != nil:
		fmt.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// refused tells whether an error is for want of rights, or of something in the kernel.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist)
}

// Isolated says whether this process is one that Isolate has started.
func Isolated() bool { return os.Getenv(isolated) != "" }

const isolated = "KUBEWEIR_TEST_ISOLATED"

// Isolate runs this program again in namespaces of its own (mounts, processes, network) and returns its exit code: whatever it
// mounts, starts or listens on is gone with it, and nothing that it does reaches the network. dir takes its temporary files.
// It needs root.
func Isolate(dir string) (code int, err error) {
	runtime.LockOSThread() // the child ends with the thread that started it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolated+"=1", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT) // `go test` asks for stacks by SIGQUIT
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("namespaces of its own: %w", err)
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

// settings are those of the kernel that a kubelet changes where they are others. Here it reads that they are as it wants
// them, and the machine's stay what they are.
var settings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// PrepareIsolated makes of new namespaces what a node's machine is: an own view of processes, kernel settings that cannot be
// changed, a loopback interface, and folders of logs that are nobody else's.
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
