//go:build unix

package edge

import (
	"errors"
	"syscall"
)

// canWriteNow says whether a socket can be written to without waiting.
const canWriteNow = true

// writeNow is a write that does not wait: again says that the client has to read first.
func writeNow(fd int, p []byte) (n int, again bool, err error) {
	for {
		n, err := syscall.Write(fd, p)
		switch {
		case err == nil:
			return n, n < len(p), nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, true, nil
		default:
			return 0, false, err
		}
	}
}
