//go:build !unix

package pool

import "net"

// socketProbe returns nil, which leaves a connection to be used once: nothing tells whether the
// server has closed an idle one.
func socketProbe(net.Conn) func() bool { return nil }
