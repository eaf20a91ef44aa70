//go:build !unix

package edge

import (
	"math"
	"net"
	"syscall"
)

// rawOf is nil: sockets are read and written by waiting only.
func rawOf(net.Conn) syscall.RawConn { return nil }

func readNow(int, []byte) (int, bool, error) { panic("not reached") }
func writeNow(int, []byte) (int, error)      { panic("not reached") }
func writable(uintptr) bool                  { panic("not reached") }

func clientDescriptors() int { return math.MaxInt }
