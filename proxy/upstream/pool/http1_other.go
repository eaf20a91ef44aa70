//go:build !unix

package pool

import "net"

// initProbe leaves the connection to be used once: nothing tells whether the server has closed an idle
// one.
func (c *http1Conn) initProbe(net.Conn) {}
