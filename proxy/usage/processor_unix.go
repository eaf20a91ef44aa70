//go:build unix

package usage

import (
	"syscall"
	"time"
)

// processTime returns the CPU time of this process.
func processTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
