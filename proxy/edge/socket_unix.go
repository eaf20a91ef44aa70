//go:build unix

package edge

import (
	"errors"
	"io"
	"math"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawOf gives access to the descriptor of a socket, nil if nc is none.
func rawOf(nc net.Conn) syscall.RawConn {
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// readNow reads without waiting; again is true if nothing has arrived yet.
func readNow(fd int, p []byte) (n int, again bool, err error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case n > 0:
			return n, false, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, true, nil
		case err != nil:
			return 0, false, err
		default:
			return 0, false, io.EOF
		}
	}
}

// writeNow writes as much as the client takes without waiting.
func writeNow(fd int, p []byte) (n int, err error) {
	for n < len(p) {
		m, err := syscall.Write(fd, p[n:])
		n += max(m, 0)
		switch {
		case err == nil && n < len(p), errors.Is(err, syscall.EAGAIN):
			return n, nil
		case err != nil && !errors.Is(err, syscall.EINTR):
			return n, err
		}
	}
	return n, nil
}

// writable reports whether a socket takes something without waiting.
func writable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
	n, err := unix.Poll(fds[:], 0)
	return err != nil || n > 0
}

// clientDescriptors returns how many connections the limit of open files allows for clients: half
// of it. The other half is for work on their behalf (connections to the upstream, one for each
// upgrade, those of the reflectors and of the store) and for the admin listener. Go has raised the
// soft limit to the hard one.
func clientDescriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(max(1, min(uint64(limit.Cur), math.MaxInt)/2)) //nolint:unconvert,gosec // signed on some systems
}
