//go:build !linux

package edge

import "syscall"

func (p *prompt) init(syscall.RawConn) {}
