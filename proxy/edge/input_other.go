//go:build !unix

package edge

import "syscall"

// initRaw leaves the connection to wait with a read of one byte.
func (in *Input) initRaw(syscall.RawConn, func(uintptr) bool) {}

func readNow(int, []byte) (int, error) { panic("not reached") }
