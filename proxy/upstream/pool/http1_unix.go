//go:build unix

package pool

import (
	"errors"
	"net"
	"syscall"
)

// initProbe lets isQuiet examine the socket without reading from it.
func (c *http1Conn) initProbe(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	var quiet bool
	peek := func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	}
	c.probe = func() bool {
		quiet = false
		return raw.Read(peek) == nil && quiet
	}
}
