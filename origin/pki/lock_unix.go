//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pki

import (
	"errors"
	"os"
	"syscall"
)

// lock waits until no other process holds the file's lock. The lock ends with the
// process at the latest.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, os.NewSyscallError("flock", err)
	}
	return func() { file.Close() }, nil
}
