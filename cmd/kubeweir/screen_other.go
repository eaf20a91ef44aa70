//go:build !windows

package main

import "os"

// enableSequences does nothing: terminals interpret control sequences.
func enableSequences(*os.File) (restore func(), err error) { return func() {}, nil }
