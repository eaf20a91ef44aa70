//go:build !linux

package edge

import "net"

func (p *prompt) init(net.Conn) {}
