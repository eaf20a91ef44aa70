//go:build unix

package edge

import (
	"errors"
	"io"
	"syscall"
)

// initRaw prepares waiting for readability, with which an idle connection needs no
// buffer and its first read no second system call. fill reads what is there.
func (in *Input) initRaw(raw syscall.RawConn, fill func(fd uintptr) (done bool)) {
	in.raw, in.fill = raw, fill
}

// readNow is a read that does not wait.
func readNow(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, errWouldBlock
		case err != nil:
			return 0, err
		default:
			return 0, io.EOF
		}
	}
}
