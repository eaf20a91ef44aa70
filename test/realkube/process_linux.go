package realkube

import "syscall"

// dieWithParent makes the kernel kill a child when its parent ends, however that ends. A group of its own keeps a
// terminal's Ctrl-C away from it: the parent decides when it stops.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
