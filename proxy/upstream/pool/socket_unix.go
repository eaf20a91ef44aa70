//go:build unix

package pool

import (
	"errors"
	"net"
	"syscall"
)

// socketProbe returns a function that reports whether the socket of nc is open and has nothing to
// read. It returns nil if nc is no socket.
func socketProbe(nc net.Conn) func() bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	var quiet bool
	peek := func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	}
	return func() bool {
		quiet = false
		return raw.Read(peek) == nil && quiet
	}
}
