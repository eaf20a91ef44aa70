//go:build !linux

package edge

func writable(uintptr) bool { return true }
