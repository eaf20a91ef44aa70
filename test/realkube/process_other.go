//go:build !linux

package realkube

import "syscall"

// dieWithParent has no equivalent outside Linux: there, Close is what ends a child.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// stopped cannot tell outside Linux.
func stopped(int) bool { return true }
