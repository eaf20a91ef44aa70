//go:build !unix

package upstream

import "net"

// initProbe leaves the connection to be used once: nothing tells whether the server
// has closed an idle one.
func (c *directConn) initProbe(net.Conn) {}
