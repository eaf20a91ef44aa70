//go:build unix

package envtest

import (
	"os"

	"golang.org/x/sys/unix"
)

// leadsSession reports whether the process was started in a session of its own (setsid).
func leadsSession() bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid == os.Getpid()
}
