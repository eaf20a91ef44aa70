//go:build !linux

package serve

import "time"

// uptime is not known.
func uptime() (boot string, up time.Duration) { return "", 0 }
