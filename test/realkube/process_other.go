//go:build !linux

package realkube

import "syscall"

// dieWithParent has no equivalent outside Linux, where only Close ends a child.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// stopped has no implementation outside Linux.
func stopped(int) bool { return true }
