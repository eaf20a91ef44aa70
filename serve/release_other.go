//go:build !linux

package serve

// releaseProgram does nothing where the pages are not known.
func releaseProgram() {}
