//go:build !linux

package app

import "time"

// uptime is not known.
func uptime() (boot string, up time.Duration) { return "", 0 }
