//go:build !linux

package main

import "runtime/debug"

// releaseMemory returns the garbage of the start to the system.
func releaseMemory() { debug.FreeOSMemory() }
