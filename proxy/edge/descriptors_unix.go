//go:build unix

package edge

import (
	"math"
	"syscall"
)

// clientDescriptors is how many connections the limit of open files leaves for
// clients: half of it. The other half is for what is done for them (connections to the
// upstream, one for each upgrade, the feeds' and the store's) and for the admin
// listener. Go has raised the soft limit to the hard one.
func clientDescriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(max(1, min(uint64(limit.Cur), math.MaxInt)/2)) //nolint:unconvert,gosec // signed on some systems
}
