//go:build !linux

package app

import "time"

// processorTime is not known.
func processorTime() (time.Duration, bool) { return 0, false }

// releaseProgram does nothing where the pages are not known.
func releaseProgram() {}
