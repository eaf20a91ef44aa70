package app

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime is for how long the machine has been up, times of sleep included, and a name of its
// start; "" if that is not known.
func uptime() (boot string, up time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(now.Nano())
}
