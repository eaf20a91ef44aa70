package edge

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// init prepares waiting for the socket.
func (p *prompt) init(raw syscall.RawConn) {
	p.raw, p.poll = raw, p.wait
}

// wait blocks until fd can be read, promptly has passed or a signal comes.
func (p *prompt) wait(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	timeout := unix.NsecToTimespec(promptly.Nanoseconds())
	n, err := unix.Ppoll(fds[:], &timeout, nil)
	p.came = n > 0 || err != nil // what was interrupted was not in vain
	return true
}
