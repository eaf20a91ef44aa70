package edge

import "golang.org/x/sys/unix"

// writable reports whether a socket takes something without waiting.
func writable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds[:], 0)
	return err != nil || n > 0
}
